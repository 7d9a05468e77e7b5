/* Family list: which families there are, and what they compute.
 *
 * In: the files of models/. Out: a line for each, or one JSON list, or a table of docs/import.md: its file, the
 * values of model_type, what stands behind the model's name in the classes that it computes, its tasks, and whether it
 * writes or makes vectors of texts. */
#ifndef TFM_IMPORT_FAMILY_LIST_H
#define TFM_IMPORT_FAMILY_LIST_H

#include "base/strbuf.h"

void family_list_lines(StrBuf *out);
void family_list_json(StrBuf *out);
void family_list_table(StrBuf *out);

#endif
