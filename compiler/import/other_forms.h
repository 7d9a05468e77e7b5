/* Folders that their type alone does not tell: other_forms.def. See other_forms.c. */
#ifndef TFM_IMPORT_OTHER_FORMS_H
#define TFM_IMPORT_OTHER_FORMS_H

#include <jansson.h>

#include "diag/diag.h"

/* The class as it is called today; NULL if `class` is. */
const char *class_of_today(const char *class);
/* False after an error about a folder that is refused whole. `path`: of the config. */
bool check_other_forms(Diag *diag, const json_t *config, const char *path);
/* Gives the config the type of its family where it shares that of another model. */
void take_own_type(json_t *config);

#endif
