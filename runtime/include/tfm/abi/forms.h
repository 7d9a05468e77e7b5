/* tfm/abi/forms.h: what is asked of forms of numbers, made of the rows of forms.def. C99. A part of tfm/abi/kernels.h.
 *
 * In: a form. Out: what its row says. Refuses nothing. */
#ifndef TFM_FORMS_H
#define TFM_FORMS_H

#include <stdint.h>

enum {
  TFM_SHORT_CHAIN = 128 /* steps of k of a product's chains, whose results are added one after the other: a part of the
                           definition of the bits */
};

typedef enum tfm_form {
#define FORM(ENUM, ...) TFM_FORM_##ENUM,
#include "tfm/abi/forms.def"
} tfm_form;

#define FORM(ENUM, ...) +1
enum {
  TFM_N_FORMS = 0
#include "tfm/abi/forms.def"
};

// ---- what it is ----

enum { TFM_KIND_FLOAT, TFM_KIND_INTEGER, TFM_KIND_MIXED };
enum { TFM_SCALE_NONE, TFM_SCALE_COLUMN, TFM_SCALE_GROUP };

/* Sets of forms, a bit each. */
#define FORM(ENUM, name, KIND, ...) | (TFM_KIND_##KIND == TFM_KIND_INTEGER) << TFM_FORM_##ENUM
enum {
  TFM_INTEGER_FORMS = 0
#include "tfm/abi/forms.def"
};
#define FORM(ENUM, name, KIND, ...) | (TFM_KIND_##KIND == TFM_KIND_MIXED) << TFM_FORM_##ENUM
enum {
  TFM_MIXED_FORMS = 0
#include "tfm/abi/forms.def"
};
#define FORM(ENUM, name, KIND, bits, together, group, each, beside, SCALE, ...) \
  | (TFM_SCALE_##SCALE != TFM_SCALE_NONE) << TFM_FORM_##ENUM
enum {
  TFM_SCALED_FORMS = 0
#include "tfm/abi/forms.def"
};

#define FORM(ENUM, name, KIND, bits, together, group, each, beside, ...) | ((beside) > 1) << TFM_FORM_##ENUM
enum {
  TFM_GROUPED_FORMS = 0
#include "tfm/abi/forms.def"
};
#define FORM(ENUM, name, KIND, bits, together, group, each, beside, ...) | ((each) == 4) << TFM_FORM_##ENUM
enum {
  TFM_WORD_FORMS = 0
#include "tfm/abi/forms.def"
};

/* Whether products in it are of whole numbers, with rows that are rounded to 8 bits. */
static inline int tfm_form_is_integer(unsigned form) { return TFM_INTEGER_FORMS >> form & 1; }
/* Whether they are so within a group, and groups are added up in f32. */
static inline int tfm_form_is_mixed(unsigned form) { return TFM_MIXED_FORMS >> form & 1; }
/* Whether rows that it is multiplied with are whole numbers of 8 bits. */
static inline int tfm_form_has_whole_rows(unsigned form) { return (TFM_INTEGER_FORMS | TFM_MIXED_FORMS) >> form & 1; }
/* Whether steps of k share numbers of which several bytes lie together: tiles go from group to group. */
static inline int tfm_form_has_groups(unsigned form) { return TFM_GROUPED_FORMS >> form & 1; }
/* Whether the number of a group is a word. */
static inline int tfm_form_has_words(unsigned form) { return TFM_WORD_FORMS >> form & 1; }
/* Whether numbers have a scale, so that rows of a weight are rounded as a whole. */
static inline int tfm_form_has_scales(unsigned form) { return TFM_SCALED_FORMS >> form & 1; }

/* The form of a row of k numbers: one of groups takes whole groups, and other rows have 8 bits. */
static inline tfm_form tfm_form_of_row(unsigned form, int64_t k) {
  switch (form) {
#define FORM(ENUM, name, KIND, bits, together, group, ...) \
  case TFM_FORM_##ENUM: return k % (group) == 0 ? TFM_FORM_##ENUM : TFM_FORM_INT8;
#include "tfm/abi/forms.def"
    default: return TFM_FORM_F32;
  }
}

/* As users write it. */
static inline const char *tfm_form_name(unsigned form) {
  static const char *const names[TFM_N_FORMS] = {
#define FORM(ENUM, name, ...) #name,
#include "tfm/abi/forms.def"
  };
  return names[form];
}

/* Of a number that stands for itself, wherever it lies; 0: none does. */
static inline int tfm_form_element_bytes(unsigned form) {
  switch (form) {
#define FORM(ENUM, name, KIND, bits, together, group, each, beside, SCALE, ...) \
  case TFM_FORM_##ENUM: return TFM_SCALE_##SCALE == TFM_SCALE_NONE ? (bits) / 8 : 0;
#include "tfm/abi/forms.def"
    default: return 0;
  }
}

// ---- how it lies in a panel ----

typedef struct tfm_form_row { /* the columns of forms.def that the loops of products go by */
  uint8_t together, group, lane, turn, unit;
} tfm_form_row;

static inline const tfm_form_row *tfm_form_row_of(unsigned form) {
  static const tfm_form_row rows[TFM_N_FORMS] = {
#define FORM(ENUM, name, KIND, bits, together, group, each, beside, SCALE, lane, turn, unit, line) \
  {together, group, lane, turn, unit},
#include "tfm/abi/forms.def"
  };
  return &rows[form];
}

/* What k steps of one column take, without its scale. k is a multiple of `together`, or all there are. */
static inline int64_t tfm_form_bytes(unsigned form, int64_t k) {
  switch (form) {
#define FORM(ENUM, name, KIND, bits, together, group, each, beside, ...)          \
  case TFM_FORM_##ENUM:                                                     \
    return (k + (together) - 1) / (together) * ((together) * (bits) / 8) +  \
           ((beside) ? (k / (group) * (each) + (beside) - 1) / ((beside) ? (beside) : 1) * (beside) : 0);
#include "tfm/abi/forms.def"
    default: return 0;
  }
}

/* What a whole column takes, with its scale. */
static inline int64_t tfm_column_bytes(unsigned form, int64_t k) {
  switch (form) {
#define FORM(ENUM, name, KIND, bits, together, group, each, beside, SCALE, ...) \
  case TFM_FORM_##ENUM: return tfm_form_bytes(form, k) + (TFM_SCALE_##SCALE == TFM_SCALE_COLUMN ? 4 : 0);
#include "tfm/abi/forms.def"
    default: return 0;
  }
}

#endif
