/* Decoders of models from libraries, for those who don't have their headers. */
#include "model.h"
#include "tfm/decode.h"

const tfm_decoding *tfm_model_decoding(const tfm_model *model) { return model ? model->decoding : NULL; }

tfm_status tfm_model_decoder(tfm_model *model, const tfm_context_options *options, tfm_decoder **decoder,
                             tfm_error *error) {
  if (!decoder) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "there is no place for the decoder");
  *decoder = NULL;
  if (!model) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the model is a null pointer");
  if (!model->decoding)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the model \"%s\" is not incremental", model->library->model);
  return tfm_decoder_create(model->decoding, model->weights.packed, model->weights.packed, options, decoder, error);
}
