/* The two files of an adapter, as peft has them: adapter_config.json and adapter_model.safetensors.
 *
 * In: a trainer of a model with adapters, a folder, the name of the base. Out: the files in the folder, each whole or
 * not at all. Refused: a model without adapters, or with adapters that peft has no names for. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "tfm/abi/adapts.h"
#include "tfm/abi/checkpoint.h"
#include "train/trainer_parts.h"

#define ROOT "base_model.model."

typedef char Path[PATH_MAX];

static bool path_in(Path to, const char *folder, const char *name) {
  const int n = snprintf(to, PATH_MAX, "%s/%s", folder, name);
  if (n >= PATH_MAX) errno = ENAMETOOLONG;
  return n >= 0 && n < PATH_MAX;
}

/* The text of the config has everything but the base. */
static bool write_config(const char *path, const char *text, const char *base) {
  Path part;
  const int n = snprintf(part, sizeof part, "%s.%ld.tmp", path, (long)getpid());
  FILE *file = n < (int)sizeof part ? fopen(part, "we") : NULL;
  if (!file) return false;
  fputs("{\n  \"base_model_name_or_path\": ", file);
  if (base) tfm_write_quoted(file, base);
  fprintf(file, "%s%s", base ? "" : "null", text);
  bool good = !ferror(file) && fflush(file) == 0 && fsync(fileno(file)) == 0;
  good = fclose(file) == 0 && good && rename(part, path) == 0;
  if (!good) unlink(part);
  return good;
}

static size_t name_bytes(const tfm_training *training) {
  size_t bytes = 1;
  for (uint32_t i = 0; i < training->n_parameters; i++)
    if (training->parameters[i].adapts) bytes += sizeof ROOT + strlen(training->parameters[i].path);
  return bytes;
}

static tfm_status write_adapters(tfm_trainer *t, const char *path, tfm_error *error) {
  const tfm_training *training = t->training;
  const size_t list = (training->n_parameters + 1) * sizeof(tfm_named_tensor), bytes = list + name_bytes(training);
  tfm_named_tensor *tensors = allocate(&t->allocator, bytes, ALIGNMENT);
  if (!tensors) return tfm_refuse(error, TFM_E_NOMEM, "no memory for a list of weights");
  char *name = (char *)tensors + list;
  int64_t n = 0;
  for (uint32_t i = 0; i < training->n_parameters; i++) {
    const tfm_parameter *p = &training->parameters[i];
    if (!p->adapts) continue;
    tensors[n++] = (tfm_named_tensor){name, tfm_trainer_place(t, i), p->dims, p->rank, p->form};
    name += sprintf(name, ROOT "%s", p->path) + 1;
  }
  const tfm_status status = tfm_write_tensors(path, tensors, n, error);
  release(&t->allocator, tensors, bytes);
  return status;
}

static tfm_status write_both(tfm_trainer *t, const char *folder, const char *base, tfm_error *error) {
  Path config, weights;
  mkdir(folder, 0777); /* it may be there */
  if (!path_in(config, folder, "adapter_config.json") || !path_in(weights, folder, "adapter_model.safetensors"))
    return tfm_file_failed(error, folder, "write an adapter");
  const tfm_status status = write_adapters(t, weights, error);
  if (status) return status;
  return write_config(config, t->training->adapter, base) ? TFM_OK : tfm_file_failed(error, config, "write the file");
}

tfm_status tfm_trainer_save_adapter(tfm_trainer *t, const char *folder, const char *base, tfm_error *error) {
  tfm_status status = training_enter(t, error);
  if (status) return status;
  if (!folder)
    status = tfm_refuse_call(error, "a folder is needed");
  else if (t->training->no_adapter)
    status = tfm_refuse(error, TFM_E_USAGE, "%s", t->training->no_adapter);
  else if (!t->training->adapter)
    status = tfm_refuse_call(error, "the model has no adapters: it needs a line as adapt [\"*.query\"] { rank = 8 }");
  else
    status = write_both(t, folder, base, error);
  return training_leave(t, status ? status : tfm_succeed(error));
}

int32_t tfm_trainer_has_adapter(const tfm_trainer *t) { return t && t->training->adapter ? 1 : 0; }

const char *tfm_trainer_no_adapter(const tfm_trainer *t) { return t ? t->training->no_adapter : NULL; }
