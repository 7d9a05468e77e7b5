/* The numbers that generated kernels were tuned with (kernel_tuning.def), as constants. */
#ifndef TFM_KERNELS_KERNEL_TUNING_H
#define TFM_KERNELS_KERNEL_TUNING_H

enum {
#define TUNING(name, value, ...) name = value,
#include "kernels/kernel_tuning.def"
};

#endif
