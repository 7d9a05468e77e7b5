/* Other forms: folders that are refused whole, because the same model is there in a form that is read.
 *
 * In: a config.json. Refused: what a row of other_forms.def names, with one message that says where the other form is,
 * in place of one for each key that nothing reads. */
#ifndef TFM_IMPORT_OTHER_FORMS_H
#define TFM_IMPORT_OTHER_FORMS_H

#include <jansson.h>

#include "diag/diag.h"

/* False after an error. `path`: of the file. */
bool other_forms_check(Diag *diag, const json_t *config, const char *path);

#endif
