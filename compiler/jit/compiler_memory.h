/* What the compiler leaves in the process after code was made. */
#ifndef TFM_JIT_COMPILER_MEMORY_H
#define TFM_JIT_COMPILER_MEMORY_H

/* The pages of LLVM's code leave the process, and with them what the heap holds free: some 65 MB after code was made,
 * which would otherwise stand beside the weights for as long as the model does. What is called after all (to take code
 * down, to make more) comes from the file again. */
void compiler_give_back_memory(void);

#endif
