/* Opening a compiled library by its path, for callers that do not have its header.
 *
 * In: the path of an ELF shared library, that of its weights. Out: a tfm_model. The library's one exported function
 * with a known ending is looked up in the file itself, before the loader maps it. Everything that is read must lie
 * inside the file: the tables of segments and sections, every segment and section, the names. Linkers write the table
 * of sections at the end, so a file that was cut off, or whose end was never written, is noticed and refused; the
 * loader would crash on it. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library/open.h"
#include "tfm/abi/cpu.h"

// ---- loading ----

/* "dir/libx.so" and "dir/x.so" give "dir/x.tfmw", as `tfmc compile` names it. NULL: no memory. */
static char *weights_beside(const char *library) {
  const char *slash = strrchr(library, '/'), *name = slash ? slash + 1 : library;
  size_t folder = (size_t)(name - library);
  if (strncmp(name, "lib", 3) == 0 && name[3]) name += 3;
  const char *end = strrchr(name, '.');
  size_t length = end && end != name ? (size_t)(end - name) : strlen(name);
  char *path = malloc(folder + length + sizeof ".tfmw");
  if (!path) return NULL;
  memcpy(path, library, folder);
  memcpy(path + folder, name, length);
  memcpy(path + folder + length, ".tfmw", sizeof ".tfmw");
  return path;
}

static tfm_status no_memory(tfm_error *error) {
  return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory to open a library");
}

/* The loader searches its own folders for names without a slash: "libx.so" becomes "./libx.so". */
static void *load_library(const char *path, tfm_error *error) {
  char *local = NULL;
  if (!strchr(path, '/')) {
    local = malloc(strlen(path) + 3);
    if (!local) return no_memory(error), NULL;
    memcpy(local, "./", 2);
    strcpy(local + 2, path);
  }
  void *handle = dlopen(local ? local : path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "%s: cannot be loaded: %s", path, dlerror());
  free(local);
  return handle;
}

/* Looks for x.tfmw only if the library needs weights that it does not hold. */
static tfm_status open_with_weights(const tfm_library *library, const char *library_path, const char *weights_path,
                                    tfm_model **model, tfm_error *error) {
  bool beside = !weights_path && library && library->abi == TFM_LIBRARY_ABI && !library->weights &&
                library->n_programs && library->programs[0]->weights_bytes;
  if (!beside) return tfm_library_open(library, weights_path, model, error);
  char *path = weights_beside(library_path);
  if (!path) return no_memory(error);
  tfm_status status = tfm_library_open(library, path, model, error);
  free(path);
  return status;
}

tfm_status library_load(const char *path, const char *suffix, void **handle, const void **table, tfm_error *error) {
  if (!path) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the path is a null pointer");
  char *symbol = NULL;
  tfm_status status = elf_find_export(path, suffix, &symbol, error);
  if (status) return status;
  *handle = load_library(path, error);
  union { /* converting a pointer to an object into one to a function is no C */
    void *object;
    const void *(*function)(void);
  } found = {*handle ? dlsym(*handle, symbol) : NULL};
  free(symbol);
  *table = found.object ? found.function() : NULL;
  return *handle ? TFM_OK : TFM_E_ENV;
}

/* The library stays loaded as long as the model has users: its code and constants are part of the model. */
tfm_status tfm_model_open(const char *library_path, const char *weights_path, tfm_model **model, tfm_error *error) {
  void *handle;
  const void *library;
  if (!model) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the pointer for the model is null");
  *model = NULL;
  tfm_status status = library_load(library_path, "_program", &handle, &library, error);
  if (status) return status;
  status = open_with_weights(library, library_path, weights_path, model, error);
  if (status) {
    dlclose(handle);
    return status;
  }
  (*model)->handle = handle;
  (*model)->unload = dlclose;
  return TFM_OK;
}

// ---- exports of a file ----

/* How users call the machine of an ELF file: a family, or another one. */
static const char *machine_name(uint16_t machine) {
#define FAMILY(name, number, text, elf, ...) \
  if (machine == elf) return text;
#include "tfm/abi/families.def"
  return "another kind of machine";
}

/* e_machine of libraries that are opened here. */
static uint16_t machine_here(void) {
  uint16_t machine = EM_NONE;
#define FAMILY(name, number, text, elf, ...) \
  if (cpu_family() == number) machine = elf;
#include "tfm/abi/families.def"
  return machine;
}

typedef struct ElfFile {
  const char *path;
  tfm_error *error;
  int fd;
  uint64_t size;
  Elf64_Ehdr header;
  Elf64_Shdr *sections; /* header.e_shnum */
  Elf64_Sym *symbols;
  char *names;
  uint64_t n_symbols, names_bytes;
} ElfFile;

static tfm_status refuse(const ElfFile *file, tfm_status status, const char *why) {
  return tfm_fail(file->error, status, TFM_REASON_OTHER, NULL, "%s: %s", file->path, why);
}

static tfm_status damaged(const ElfFile *file) {
  return refuse(file, TFM_E_ENV, "the library is damaged or was cut off");
}

/* Written so that no sum can overflow. */
static bool inside(const ElfFile *file, uint64_t offset, uint64_t bytes) {
  return offset <= file->size && bytes <= file->size - offset;
}

/* pread may return less than was asked for; 0 bytes: the file became shorter while it was read. */
static tfm_status read_elf_at(const ElfFile *file, uint64_t offset, void *to, uint64_t bytes) {
  if (!inside(file, offset, bytes)) return damaged(file);
  for (uint64_t done = 0; done < bytes;) {
    ssize_t n = pread(file->fd, (char *)to + done, (size_t)(bytes - done), (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refuse(file, TFM_E_ENV, strerror(errno));
    if (n == 0) return damaged(file);
    done += (uint64_t)n;
  }
  return TFM_OK;
}

/* Reads a part of the file into new memory with a zero byte after it, so that names always end. The caller frees it,
 * also after a failure. `memory` points to the pointer that is set. */
static tfm_status read_new(const ElfFile *file, uint64_t offset, uint64_t bytes, void *memory) {
  if (!inside(file, offset, bytes)) return damaged(file);
  char *new = malloc((size_t)bytes + 1);
  if (!new) return refuse(file, TFM_E_NOMEM, "no memory to read the library");
  new[bytes] = 0;
  memcpy(memory, &new, sizeof new);
  return read_elf_at(file, offset, new, bytes);
}

// ---- the tables ----

/* The sizes of table entries are checked, so that the tables can be read as arrays of the types in elf.h. */
static tfm_status read_elf_header(ElfFile *file) {
  if (file->size < sizeof file->header) return refuse(file, TFM_E_ENV, "this is no shared library");
  tfm_status status = read_elf_at(file, 0, &file->header, sizeof file->header);
  if (status) return status;
  const Elf64_Ehdr *header = &file->header;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_type != ET_DYN)
    return refuse(file, TFM_E_ENV, "this is no shared library");
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
      header->e_machine != machine_here())
    return tfm_fail(file->error, TFM_E_ENV, TFM_REASON_OTHER, NULL,
                    "%s: the library holds code for %s; this machine is %s", file->path,
                    machine_name(header->e_machine), machine_name(machine_here()));
  if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_shentsize != sizeof(Elf64_Shdr) || !header->e_phnum ||
      !header->e_shnum)
    return damaged(file);
  return TFM_OK;
}

/* The loader maps segments without asking whether the file is long enough. */
static tfm_status check_segments(const ElfFile *file) {
  bool loads = false, dynamic = false;
  for (uint64_t i = 0; i < file->header.e_phnum; i++) {
    Elf64_Phdr segment;
    if (!inside(file, file->header.e_phoff, (i + 1) * sizeof segment)) return damaged(file);
    tfm_status status = read_elf_at(file, file->header.e_phoff + i * sizeof segment, &segment, sizeof segment);
    if (status) return status;
    if (!inside(file, segment.p_offset, segment.p_filesz)) return damaged(file);
    if (segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz) return damaged(file);
    loads = loads || segment.p_type == PT_LOAD;
    dynamic = dynamic || segment.p_type == PT_DYNAMIC;
  }
  return loads && dynamic ? TFM_OK : damaged(file);
}

/* Section 0 is always empty; any other empty one means that the table was never written. */
static tfm_status read_sections(ElfFile *file) {
  uint64_t bytes = file->header.e_shnum * sizeof *file->sections;
  tfm_status status = read_new(file, file->header.e_shoff, bytes, &file->sections);
  if (status) return status;
  for (uint32_t i = 1; i < file->header.e_shnum; i++) {
    const Elf64_Shdr *section = &file->sections[i];
    if (section->sh_type == SHT_NULL) return damaged(file);
    if (section->sh_type != SHT_NOBITS && !inside(file, section->sh_offset, section->sh_size)) return damaged(file);
  }
  return TFM_OK;
}

/* The dynamic symbols and their names; a library has one such table. */
static tfm_status read_symbols(ElfFile *file) {
  const Elf64_Shdr *table = NULL;
  for (uint32_t i = 1; i < file->header.e_shnum && !table; i++)
    if (file->sections[i].sh_type == SHT_DYNSYM) table = &file->sections[i];
  if (!table || table->sh_entsize != sizeof *file->symbols || table->sh_link >= file->header.e_shnum)
    return damaged(file);
  const Elf64_Shdr *names = &file->sections[table->sh_link];
  if (names->sh_type != SHT_STRTAB) return damaged(file);
  file->n_symbols = table->sh_size / sizeof *file->symbols;
  file->names_bytes = names->sh_size;
  tfm_status status = read_new(file, table->sh_offset, table->sh_size, &file->symbols);
  return status ? status : read_new(file, names->sh_offset, names->sh_size, &file->names);
}

// ---- the export ----

static bool ends_with(const char *name, const char *suffix) {
  size_t length = strlen(name), end = strlen(suffix);
  return length > end && strcmp(name + length - end, suffix) == 0;
}

/* The name is copied, because the table is freed. More than one such function: the objects of several models were
 * linked. */
static tfm_status find(const ElfFile *file, const char *suffix, char **name) {
  const char *found = NULL;
  for (uint64_t i = 0; i < file->n_symbols; i++) {
    const Elf64_Sym *symbol = &file->symbols[i];
    if (symbol->st_name >= file->names_bytes) return damaged(file);
    const char *candidate = file->names + symbol->st_name;
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !ends_with(candidate, suffix))
      continue;
    if (found) return refuse(file, TFM_E_ENV, "the library holds more than one compiled model");
    found = candidate;
  }
  if (!found) return refuse(file, TFM_E_ENV, "the library holds no compiled model");
  *name = strdup(found);
  return *name ? TFM_OK : refuse(file, TFM_E_NOMEM, "no memory to read the library");
}

/* O_NONBLOCK: opening a pipe must not wait for its other end. */
static tfm_status open_elf(ElfFile *file) {
  struct stat info;
  file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file->fd < 0 || fstat(file->fd, &info)) return refuse(file, TFM_E_ENV, strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse(file, TFM_E_ENV, "this is no regular file");
  file->size = (uint64_t)info.st_size;
  return TFM_OK;
}

tfm_status elf_find_export(const char *path, const char *suffix, char **name, tfm_error *error) {
  ElfFile file = {.path = path, .error = error, .fd = -1};
  tfm_status status = open_elf(&file);
  if (!status) status = read_elf_header(&file);
  if (!status) status = check_segments(&file);
  if (!status) status = read_sections(&file);
  if (!status) status = read_symbols(&file);
  if (!status) status = find(&file, suffix, name);
  free(file.sections);
  free(file.symbols);
  free(file.names);
  if (file.fd >= 0) close(file.fd);
  return status;
}
