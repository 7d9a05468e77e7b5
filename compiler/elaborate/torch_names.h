/* TorchNames: names of PyTorch that the language does not have.
 *
 * In: an unknown name, or an argument that a callee does not take. Out: what to write instead ("here it is Encoder"), or
 * NULL for a name that is not in torch_names.def. */
#ifndef TFM_ELABORATE_TORCH_NAMES_H
#define TFM_ELABORATE_TORCH_NAMES_H

const char *torch_name_hint(const char *name);
const char *torch_argument_hint(const char *name);

#endif
