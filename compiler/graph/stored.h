/* The types that weights are kept in. node_forms.h says what is made of them. */
#ifndef TFM_GRAPH_STORED_H
#define TFM_GRAPH_STORED_H

/* The type that a weight is kept in. Its values are those of f32 in any case: what a file holds in 16 bits is exact in
 * f32, and only kept in fewer bits. MXFP4 is that of an axis before the last, in blocks of 32. */
typedef enum Stored { STORED_ANY, STORED_F32, STORED_BF16, STORED_F16, STORED_MXFP4, N_STORED } Stored;

extern const char *const stored_names[N_STORED];

#endif
