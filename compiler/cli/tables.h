/* The tables of the documentation, as Markdown. Each is made from the rows of a .def file alone, so a document cannot
 * say something else than the code does; a test compares them. Each function appends one table to `out`. */
#ifndef TFM_CLI_TABLES_H
#define TFM_CLI_TABLES_H

#include "base/strbuf.h"

void table_of_commands(StrBuf *out);
void table_of_exit_codes(StrBuf *out);
void table_of_options(StrBuf *out);
void table_of_stages(StrBuf *out);
void table_of_environment(StrBuf *out);
void table_of_generate_options(StrBuf *out);
void table_of_diagnostics(StrBuf *out);
void table_of_primitives(StrBuf *out);
void table_of_torch_names(StrBuf *out);
void table_of_ops(StrBuf *out);
void table_of_passes(StrBuf *out);
void table_of_fusions(StrBuf *out);
void table_of_kernels(StrBuf *out);
void table_of_forms(StrBuf *out);
void table_of_targets(StrBuf *out);
void table_of_tuning(StrBuf *out);
void table_of_explore_data(StrBuf *out);

#endif
