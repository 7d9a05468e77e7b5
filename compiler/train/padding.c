/* In: the metadata NAME.pad of a file. Out: what pads the inputs. See padding.h. */
#include "train/padding.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/strbuf.h"

// ---- a number ----

static const char *behind_digits(const char *text) { return text + strspn(text, "0123456789"); }

/* "-100", "0.5", "1e-9", "inf": all of it, as number_read takes it. */
static bool is_number(const char *text) {
  if (*text == '-' || *text == '+') text++;
  if (strcasecmp(text, "inf") == 0 || strcasecmp(text, "infinity") == 0 || strcasecmp(text, "nan") == 0) return true;
  const char *end = behind_digits(text);
  bool has_digits = end != text;
  if (*end == '.') {
    const char *point = end + 1;
    end = behind_digits(point);
    has_digits |= end != point;
  }
  if (!has_digits) return false;
  if (*end != 'e' && *end != 'E') return !*end;
  end += end[1] == '-' || end[1] == '+' ? 2 : 1;
  return behind_digits(end) != end && !*behind_digits(end);
}

static bool is_truth(const char *text) { return strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0; }

/* Why the text does not pad the input; NULL: it does, with *number. */
static const char *fault_of(Arena *arena, const DataInput *input, const char *text, double *number) {
  const bool is_f32 = input->node->dtype == DTYPE_F32, is_bool = input->node->dtype == DTYPE_BOOL;
  if (input->symbol < 0) return "items do not differ in length there, so that nothing is padded";
  if (is_bool && is_truth(text)) {
    *number = strcasecmp(text, "true") == 0;
    return NULL;
  }
  if (!is_number(text)) return is_bool ? "it pads with true or false" : "it is no number";
  *number = number_read(text);
  if (is_f32) return isfinite(*number) || input->may_be_infinite ? (isnan(*number) ? "it is no number" : NULL)
                                                                 : "it is not finite";
  if (is_bool) return *number == 0 || *number == 1 ? NULL : "it pads with true or false";
  if (!isfinite(*number) || floor(*number) != *number || *number < INT32_MIN || *number > INT32_MAX)
    return "it is no whole number of 32 bits";
  if (input->limit < 0 || (input->has_ignored && *number == (double)input->ignored)) return NULL;
  if (*number >= 0 && *number < (double)input->limit) return NULL;
  return arena_printf(arena, "ids are in [0, %lld)", (long long)input->limit);
}

// ---- a file ----

static bool refuse(const DataSet *data, const TensorFile *file, const FileMetadata *entry, const char *why) {
  diag_error_at(data->request.diag, file->file.path, DIAG_INPUT_VALUE, "the metadata \"%s\" is \"%s\": %s", entry->key,
                entry->value, why);
  return false;
}

static DataInput *input_named(const DataSet *data, const char *name, size_t n) {
  for (uint32_t i = 0; i < data->request.n_inputs; i++) {
    const char *own = data->inputs[i].node->attr.name;
    if (strlen(own) == n && strncmp(own, name, n) == 0) return &data->inputs[i];
  }
  return NULL;
}

static bool read_entry(const DataSet *data, const TensorFile *file, const FileMetadata *entry, size_t n) {
  Arena *arena = data->request.arena;
  DataInput *input = input_named(data, entry->key, n);
  double number = 0;
  if (!input && tensor_file_find(file, arena_printf(arena, "%.*s", (int)n, entry->key))) return true; /* of no input */
  if (!input) return refuse(data, file, entry, "the objective has no such input");
  const char *fault = fault_of(arena, input, entry->value, &number);
  if (fault) return refuse(data, file, entry, fault);
  if (input->has_padding && input->padding != number)
    return refuse(data, file, entry, arena_printf(arena, "but %g in a file before", input->padding));
  input->has_padding = true;
  input->padding = number;
  return true;
}

bool padding_read(const DataSet *data, const TensorFile *file) {
  static const char end[] = ".pad";
  const size_t of_end = sizeof end - 1;
  bool good = true;
  for (size_t i = 0; i < file->metadata.n; i++) {
    const FileMetadata *entry = &file->metadata.items[i];
    const size_t n = strlen(entry->key);
    if (n <= of_end || strcmp(entry->key + n - of_end, end) != 0) continue;
    good = read_entry(data, file, entry, n - of_end) && good;
  }
  return good;
}
