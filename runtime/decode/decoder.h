/* A decoder's life. See decoder.c; what a decoder is, in decoder_state.h. */
#ifndef TFM_RUNTIME_DECODER_H
#define TFM_RUNTIME_DECODER_H

#include "decode/decoder_state.h"

/* What cancels these calls cancels those of the decoder. */
void decoder_stop_with(tfm_decoder *decoder, Stop *stop);

#endif
