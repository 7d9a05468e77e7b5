/* Reading what a shared library exports, without loading it: a small ELF file made by hand, every prefix of it, every
 * flipped bit. */
#include <criterion/criterion.h>
#include <elf.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library/open.h"
#include "tfm/abi/cpu.h"
#include "temporary.h"

typedef struct File {
  Elf64_Ehdr header;
  Elf64_Phdr segments[2];
  Elf64_Sym symbols[5];
  char names[64];
  Elf64_Shdr sections[3];
} File;

static const char names[] = "\0model_program\0model_open\0other_program\0my_programs";
static char path[TEMPORARY_BYTES];
static File file;
static tfm_error error;

static Elf64_Sym symbol(uint32_t name, int type, uint16_t section) {
  return (Elf64_Sym){.st_name = name, .st_info = ELF64_ST_INFO(STB_GLOBAL, type), .st_shndx = section, .st_value = 64};
}

static void make_file(void) {
  memset(&file, 0, sizeof file);
  memcpy(file.header.e_ident, ELFMAG, SELFMAG);
  file.header.e_ident[EI_CLASS] = ELFCLASS64;
  file.header.e_ident[EI_DATA] = ELFDATA2LSB;
  file.header.e_type = ET_DYN;
#if defined(__x86_64__)
  file.header.e_machine = EM_X86_64;
#else
  file.header.e_machine = EM_AARCH64;
#endif
  file.header.e_phoff = offsetof(File, segments);
  file.header.e_shoff = offsetof(File, sections);
  file.header.e_phentsize = sizeof(Elf64_Phdr);
  file.header.e_shentsize = sizeof(Elf64_Shdr);
  file.header.e_phnum = 2;
  file.header.e_shnum = 3;
  file.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_filesz = sizeof file, .p_memsz = sizeof file};
  file.segments[1] = (Elf64_Phdr){.p_type = PT_DYNAMIC};
  file.symbols[1] = symbol(1, STT_FUNC, 1);
  file.symbols[2] = symbol(15, STT_FUNC, 1);
  file.symbols[3] = symbol(26, STT_FUNC, SHN_UNDEF);
  file.symbols[4] = symbol(40, STT_FUNC, 1);
  memcpy(file.names, names, sizeof names);
  file.sections[1] = (Elf64_Shdr){.sh_type = SHT_DYNSYM, .sh_offset = offsetof(File, symbols), .sh_link = 2,
                                  .sh_size = sizeof file.symbols, .sh_entsize = sizeof(Elf64_Sym)};
  file.sections[2] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = offsetof(File, names), .sh_size = sizeof file.names};
}

static void setup(void) {
  int fd = mkstemp(temporary_name(path, "tfm-elf"));
  cr_assert_geq(fd, 0);
  close(fd);
  make_file();
}

static void teardown(void) { unlink(path); }

TestSuite(library_files, .init = setup, .fini = teardown);

/* Writes the file's first bytes and looks for the export; NULL: refused. To be freed. */
static char *export_of(size_t size) {
  FILE *out = fopen(path, "wb");
  cr_assert(out && fwrite(&file, 1, size, out) == size && fclose(out) == 0);
  char *name = NULL;
  tfm_status status = elf_find_export(path, "_program", &name, &error);
  cr_assert_eq(status == TFM_OK, name != NULL);
  cr_assert(status == TFM_OK || status == TFM_E_ENV);
  return name;
}

static void refused(const char *message) {
  cr_expect_null(export_of(sizeof file));
  cr_expect(strstr(error.message, message), "\"%s\" is not in \"%s\"", message, error.message);
}

Test(library_files, the_one_export_is_found) {
  char *name = export_of(sizeof file);
  cr_assert_not_null(name, "%s", error.message);
  cr_expect_str_eq(name, "model_program");
  free(name);
}

Test(library_files, none_and_several_are_refused) {
  file.symbols[1].st_shndx = SHN_UNDEF;
  refused("no compiled model");
  file.symbols[1].st_shndx = 1, file.symbols[3].st_shndx = 1;
  refused("more than one");
}

Test(library_files, every_prefix_is_refused) {
  for (size_t size = 0; size < sizeof file; size++) cr_assert_null(export_of(size), "%zu bytes", size);
}

Test(library_files, no_flipped_bit_is_read_past_the_end) {
  for (size_t bit = 0; bit < 8 * sizeof file; bit++) {
    ((char *)&file)[bit / 8] ^= (char)(1 << bit % 8);
    free(export_of(sizeof file));
    ((char *)&file)[bit / 8] ^= (char)(1 << bit % 8);
  }
}

Test(library_files, what_was_never_written_is_noticed) {
  memset(&file.sections[2], 0, sizeof file.sections[2]);
  refused("damaged or was cut off");
  make_file();
  file.header.e_machine = EM_VAX;
  refused("the library holds code for another kind of machine; this machine is ");
  file.header.e_machine = cpu_family() == TFM_FAMILY_X86_64 ? EM_AARCH64 : EM_X86_64;
  refused(cpu_family() == TFM_FAMILY_X86_64 ? "code for aarch64; this machine is x86_64" : "code for x86_64; this ");
  make_file();
  file.header.e_type = ET_EXEC;
  refused("no shared library");
}
