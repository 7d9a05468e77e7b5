/* In: the state of a run and its weights. Out: folders of checkpoints, and files of weights. Refused: what
 * the system does not let it write. See checkpoint.h. */
#include "tfm/abi/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "tfm/abi/forms.h"

// ---- paths ----

#define HIDDEN ".step-" /* how folders begin that are not finished, or no longer wanted */

typedef char Path[PATH_MAX];

/* False if the path would be too long; errno says so. */
static bool join(Path to, const char *folder, const char *name) {
  const int n = snprintf(to, PATH_MAX, "%s/%s", folder, name);
  if (n >= 0 && n < PATH_MAX) return true;
  errno = ENAMETOOLONG;
  return false;
}

/* What a folder names reaches the disk. */
static bool sync_folder(const char *path) {
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool good = fsync(fd) == 0;
  close(fd);
  return good;
}

static bool close_synced(FILE *file) {
  const bool good = fflush(file) == 0 && fsync(fileno(file)) == 0;
  return (fclose(file) == 0) && good;
}

// ---- safetensors ----

static uint64_t named_tensor_bytes(const tfm_named_tensor *tensor) {
  uint64_t n = (uint64_t)tfm_form_element_bytes(tensor->form);
  for (int32_t i = 0; i < tensor->rank; i++) n *= (uint64_t)tensor->dims[i];
  return n;
}

/* Writes, or only counts if there is no file. */
static uint64_t text(FILE *file, const char *words) {
  if (file) fputs(words, file);
  return strlen(words);
}

static uint64_t number(FILE *file, uint64_t value, const char *before) {
  char words[32];
  snprintf(words, sizeof words, "%s%llu", before, (unsigned long long)value);
  return text(file, words);
}

uint64_t tfm_write_quoted(FILE *file, const char *name) {
  uint64_t n = text(file, "\"");
  for (; *name; name++) {
    char one[8] = {*name, 0};
    if (*name == '"' || *name == '\\') snprintf(one, sizeof one, "\\%c", *name);
    if ((unsigned char)*name < ' ') snprintf(one, sizeof one, "\\u%04x", *name);
    n += text(file, one);
  }
  return n + text(file, "\"");
}

/* The same tensors give the same bytes. The length is a multiple of 8, so that the numbers are aligned. */
static uint64_t header(FILE *file, const tfm_named_tensor *tensors, int64_t n) {
  uint64_t length = text(file, "{"), offset = 0;
  for (int64_t i = 0; i < n; i++) {
    if (i) length += text(file, ",");
    length += tfm_write_quoted(file, tensors[i].name);
    length += text(file, ":{\"dtype\":\"");
    length += text(file, tensors[i].form == TFM_FORM_BF16 ? "BF16" : tensors[i].form == TFM_FORM_F16 ? "F16" : "F32");
    length += text(file, "\",\"shape\":[");
    for (int32_t axis = 0; axis < tensors[i].rank; axis++)
      length += number(file, (uint64_t)tensors[i].dims[axis], axis ? "," : "");
    length += number(file, offset, "],\"data_offsets\":[");
    offset += named_tensor_bytes(&tensors[i]);
    length += number(file, offset, ",");
    length += text(file, "]}");
  }
  length += text(file, "}");
  while (length % 8) length += text(file, " ");
  return length;
}

static bool write_tensors(const char *path, const tfm_named_tensor *tensors, int64_t n) {
  FILE *file = fopen(path, "wbe");
  if (!file) return false;
  const uint64_t length = header(NULL, tensors, n);
  for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 255), file);
  header(file, tensors, n);
  for (int64_t i = 0; i < n; i++)
    if (named_tensor_bytes(&tensors[i])) fwrite(tensors[i].data, 1, (size_t)named_tensor_bytes(&tensors[i]), file);
  const bool good = !ferror(file);
  return close_synced(file) && good;
}

/* The folder that holds a path. */
static void folder_of(Path folder, const char *path) {
  const char *slash = strrchr(path, '/');
  snprintf(folder, PATH_MAX, "%.*s", slash && slash != path ? (int)(slash - path) : 1, slash ? path : ".");
}

tfm_status tfm_write_tensors(const char *path, const tfm_named_tensor *tensors, int64_t n, tfm_error *error) {
  Path part, folder;
  const int length = snprintf(part, sizeof part, "%s.%ld.tmp", path, (long)getpid());
  if (length >= (int)sizeof part) errno = ENAMETOOLONG;
  if (length >= (int)sizeof part) return tfm_file_failed(error, path, "write the file");
  folder_of(folder, path);
  if (write_tensors(part, tensors, n) && rename(part, path) == 0 && sync_folder(folder)) return tfm_succeed(error);
  const tfm_status status = tfm_file_failed(error, path, "write the file");
  unlink(part);
  return status;
}

// ---- folders ----

/* A folder that was hidden before, so that nobody meets half a checkpoint. It has these files and nothing else. */
static void remove_hidden(const char *folder) {
  static const char *const names[] = {TFM_CHECKPOINT_STATE, TFM_CHECKPOINT_WEIGHTS, TFM_CHECKPOINT_AVERAGE};
  Path path;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (join(path, folder, names[i])) unlink(path);
  rmdir(folder);
}

/* Gives the finished folder its name. One of that name is of the same step and so holds the same; the two change
 * places, since a folder that holds something cannot be renamed over. */
static bool put_in_place(const char *made, const char *path) {
  if (rename(made, path) == 0) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) return false;
  if (renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
    remove_hidden(made);
    return true;
  }
  return false;
}

static bool write_latest(const char *folder, const char *name) {
  Path part, path;
  if (!join(part, folder, HIDDEN "latest") || !join(path, folder, "latest")) return false;
  FILE *file = fopen(part, "we");
  if (!file) return false;
  fprintf(file, "%s\n", name);
  const bool good = !ferror(file);
  return close_synced(file) && good && rename(part, path) == 0 && sync_folder(folder);
}

static tfm_status write_files(const char *made, const tfm_state_head *head,
                              const tfm_state_bytes blocks[TFM_STATE_BLOCKS], const tfm_named_tensors files[2],
                              tfm_error *error) {
  static const char *const names[] = {TFM_CHECKPOINT_WEIGHTS, TFM_CHECKPOINT_AVERAGE};
  Path state, weights;
  if (!join(state, made, TFM_CHECKPOINT_STATE) || mkdir(made, 0777) != 0)
    return tfm_file_failed(error, made, "write a checkpoint");
  const tfm_status status = tfm_state_write(state, head, blocks, error);
  if (status) return status;
  for (int i = 0; i < 2; i++)
    if ((!i || files[i].n) && (!join(weights, made, names[i]) || !write_tensors(weights, files[i].items, files[i].n)))
      return tfm_file_failed(error, made, "write a checkpoint");
  return sync_folder(made) ? TFM_OK : tfm_file_failed(error, made, "write a checkpoint");
}

tfm_status tfm_checkpoint_save(const char *folder, const tfm_state_head *head,
                               const tfm_state_bytes blocks[TFM_STATE_BLOCKS], const tfm_named_tensors files[2],
                               tfm_error *error) {
  char name[32], hidden[64];
  Path made, path;
  snprintf(name, sizeof name, "step-%08lld", (long long)head->step);
  snprintf(hidden, sizeof hidden, HIDDEN "%08lld.%ld", (long long)head->step, (long)getpid());
  if (!join(made, folder, hidden) || !join(path, folder, name))
    return tfm_file_failed(error, folder, "write a checkpoint");
  remove_hidden(made); /* of a process of the same number that was killed */
  tfm_status status = write_files(made, head, blocks, files, error);
  if (!status && (!put_in_place(made, path) || !sync_folder(folder) || !write_latest(folder, name)))
    status = tfm_file_failed(error, path, "write a checkpoint");
  if (status) remove_hidden(made);
  return status ? status : tfm_succeed(error);
}

// ---- finding and removing ----

/* The number of a name "step-XXXXXXXX"; -1: it is another. */
static int64_t step_of(const char *name) {
  char *end;
  if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
  const long long step = strtoll(name + 5, &end, 10);
  return *end ? -1 : step;
}

/* The greatest step below `limit` that the folder has a checkpoint of; -1: none. */
static int64_t newest_below(const char *folder, int64_t limit) {
  int64_t newest = -1;
  DIR *open = opendir(folder);
  for (struct dirent *entry; open && (entry = readdir(open));) {
    const int64_t step = step_of(entry->d_name);
    if (step < limit && step > newest) newest = step;
  }
  if (open) closedir(open);
  return newest;
}

/* What `latest` says; if it is missing, because the process died before it wrote the first, the newest. */
tfm_status tfm_checkpoint_latest(const char *folder, char *path, size_t bytes, tfm_error *error) {
  Path latest;
  char name[64] = "";
  *path = 0;
  if (!join(latest, folder, "latest")) return tfm_file_failed(error, folder, "read the folder");
  FILE *file = fopen(latest, "re");
  if (!file && errno != ENOENT) return tfm_file_failed(error, latest, "read the file");
  if (file && !fgets(name, sizeof name, file)) *name = 0;
  if (file) fclose(file);
  name[strcspn(name, "\n")] = 0;
  if (file && step_of(name) < 0)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "%s: it names no checkpoint: step-XXXXXXXX", latest);
  const int64_t newest = file ? -1 : newest_below(folder, INT64_MAX);
  if (newest >= 0) snprintf(name, sizeof name, "step-%08lld", (long long)newest);
  if (*name && snprintf(path, bytes, "%s/%s", folder, name) >= (int)bytes) {
    errno = ENAMETOOLONG;
    return tfm_file_failed(error, folder, "read the folder");
  }
  return tfm_succeed(error);
}

/* False if it cannot be hidden. */
static bool hide(const char *folder, int64_t step) {
  char name[64];
  Path path, hidden;
  snprintf(name, sizeof name, "step-%08lld", (long long)step);
  if (!join(path, folder, name)) return false;
  snprintf(name, sizeof name, HIDDEN "%08lld.old", (long long)step);
  return join(hidden, folder, name) && rename(path, hidden) == 0;
}

void tfm_checkpoint_tidy(const char *folder, int64_t keep) {
  Path path;
  int64_t step = INT64_MAX;
  for (int64_t i = 0; i < keep && step >= 0; i++) step = newest_below(folder, step);
  while (keep > 0 && (step = newest_below(folder, step)) >= 0)
    if (!hide(folder, step)) break;
  DIR *open = opendir(folder);
  for (struct dirent *entry; open && (entry = readdir(open));) {
    if (strncmp(entry->d_name, HIDDEN, strlen(HIDDEN)) != 0 || !join(path, folder, entry->d_name)) continue;
    if (unlink(path) != 0) remove_hidden(path);
  }
  if (open) closedir(open);
}
