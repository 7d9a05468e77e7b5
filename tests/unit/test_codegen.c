/* What the compiler emits, seen from outside: objects that need nothing from anybody, loops of tiles that keep
 * everything in registers, sections that are never writable and executable, hosts that are told apart. */
#include <elf.h>

#include "../support/kernel_bench.h"
#include "kernels/kernel_module.h"

static const char *const names[] = {"x86-64",         "x86-64-v3", "x86-64-v4", "armv8-a", "armv8.2-a-dotprod",
                                    "armv8.6-a-i8mm", "rv64gc",    "rv64gcv",   "rv64gcv-zvl256b"};
enum { N_NAMES = sizeof names / sizeof *names };

static LLVMMemoryBufferRef emit(KernelBench *bench, bool assembly) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = kernels_module(context, &bench->plan);
  LLVMTargetMachineRef machine = target_machine(&bench->diag, bench->plan.target);
  cr_assert(machine);
  LLVMMemoryBufferRef buffer = emit_object(&bench->diag, module, machine, assembly);
  cr_assert(buffer, "%s", first_message(&bench->diag));
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return buffer;
}

// ---- a kernel of every kind ----

/* Which numbers of rows tiles have. What an object needs from others does not depend on them; which registers it takes
 * does. */
typedef enum Heights { ALL_HEIGHTS, LEAST_AND_MOST } Heights;

static uint8_t next_height(uint8_t rows, uint8_t most, Heights heights) {
  return heights == ALL_HEIGHTS || rows >= most - 1 ? (uint8_t)(rows + 1) : most;
}

static void add_tiles(KernelBench *bench, TileShape shape, int n_forms, Heights heights) {
  for (uint8_t rows = 1; rows <= shape.rows; rows = next_height(rows, shape.rows, heights))
    for (int exact_zero = 0; exact_zero < n_forms; exact_zero++) {
      KernelSpec spec = {.family = KERNEL_TILE, .rows = rows, .width = shape.width};
      spec.a_stride = 784, spec.b_stride = shape.width, spec.exact_zero = exact_zero;
      kernel_add(bench, spec);
    }
}

/* Exact tiles are those of attention; outside of it, where tiles may have more rows, they are seldom and may be slow. */
static void add_all_tiles(KernelBench *bench, Heights heights) {
  const TargetInfo *target = bench->plan.target;
  const int n_forms = target->gemm_tiles[0].rows > target->attention_keys.rows ? 1 : 2;
  for (int i = 0; i < 3; i++)
    if (target->gemm_tiles[i].rows) add_tiles(bench, target->gemm_tiles[i], n_forms, heights);
  for (uint8_t width = 32; width <= 64 && target->reads_whole_panels; width = (uint8_t)(width + 16))
    kernel_add(bench, (KernelSpec){.family = KERNEL_TILE, .rows = 1, .width = width, .a_stride = 784, .b_stride = width,
                                   .has_whole_panel = true});
  add_tiles(bench, target->attention_keys, 2, heights);
  for (int i = 0; i < 3; i++)
    if (target->attention_value_widths[i])
      add_tiles(bench, (TileShape){target->attention_keys.rows, (uint8_t)target->attention_value_widths[i]}, 2,
                heights);
}

static void add_whole_tiles(KernelBench *bench) {
  for (uint8_t panel = 32; panel <= 64; panel = (uint8_t)(panel + 16)) {
    const TileShape shape = target_whole_tile(bench->plan.target, panel);
    for (uint8_t rows = 1; rows <= shape.rows; rows = next_height(rows, shape.rows, LEAST_AND_MOST)) {
      KernelSpec spec = {.family = KERNEL_TILE, .rows = rows, .width = shape.width, .b_form = TFM_FORM_INT8};
      spec.a_stride = 208, spec.b_stride = panel;
      kernel_add(bench, spec);
    }
    const uint8_t most = (uint8_t)bench->plan.target->matrix.rows;
    for (uint8_t rows = 1; rows <= most; rows = next_height(rows, most, LEAST_AND_MOST))
      kernel_add(bench, (KernelSpec){.family = KERNEL_TILE, .rows = rows, .width = panel, .b_form = TFM_FORM_INT8,
                                     .a_stride = 208, .b_stride = panel, .is_matrix = true});
  }
}

static void add_row(KernelBench *bench, OpKind op, DType in, DType out, uint32_t n_args, ColumnAccess access) {
  Expr *args[3] = {NULL};
  KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = (uint8_t)(n_args + 1)};
  spec.operands[0] = (RowOperandSpec){.dtype = out, .access = access};
  for (uint32_t i = 0; i < n_args; i++) {
    spec.operands[i + 1] = (RowOperandSpec){.dtype = in, .access = access};
    args[i] = expr_input(bench->arena, in, i + 1);
  }
  spec.expr = expr_op(bench->arena, op, out, args[0], args[1], args[2]);
  kernel_add(bench, spec);
}

/* Every pointwise operation, for a type that it takes. */
static void add_rows(KernelBench *bench) {
  static const DType types[] = {[TYPES_F32] = DTYPE_F32, [TYPES_I32] = DTYPE_I32, [TYPES_BOOL] = DTYPE_BOOL,
                                [TYPES_NUMBER] = DTYPE_I32, [TYPES_ANY] = DTYPE_F32};
  for (OpKind op = 0; op < N_OPS; op++) {
    DType in = types[op_table[op].takes];
    if (!op_is_pointwise(op) || op == OP_WHERE) continue; /* its operands have two types; see test_row_kernels */
    add_row(bench, op, in, op_gives(op, in, in), (uint32_t)op_table[op].most, op % 2 ? COLUMN_CONTIGUOUS : COLUMN_STRIDED);
  }
  static const OpKind arithmetic[] = {OP_NEG, OP_ADD, OP_SUB, OP_MUL, OP_MAXIMUM, OP_MINIMUM}; /* f32 too */
  for (size_t i = 0; i < sizeof arithmetic / sizeof *arithmetic; i++)
    add_row(bench, arithmetic[i], DTYPE_F32, DTYPE_F32, (uint32_t)op_table[arithmetic[i]].most, COLUMN_CONTIGUOUS);
  add_row(bench, OP_TO_F32, DTYPE_BOOL, DTYPE_F32, 1, COLUMN_STRIDED);
}

static void add_reductions(KernelBench *bench) {
  static const OpKind ops[] = {OP_SUM,     OP_MEAN,        OP_MAX,        OP_MIN,     OP_ARGMAX,
                               OP_SOFTMAX, OP_LOG_SOFTMAX, OP_LAYER_NORM, OP_RMS_NORM};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    for (uint8_t reduce = 1; reduce <= 2; reduce++) {
      KernelSpec spec = {.family = KERNEL_ROW, .reduction = ops[i], .reduce = reduce, .n_operands = 2};
      if (ops[i] == OP_ARGMAX) spec.operands[0].dtype = DTYPE_I32;
      spec.expr = expr_op(bench->arena, OP_EXP, DTYPE_F32, expr_input(bench->arena, DTYPE_F32, 1), NULL, NULL);
      kernel_add(bench, spec);
    }
}

/* Rows of a family that differ in their products of bytes alone have the same code for what is in f32. */
static bool is_new_in_f32(const TargetInfo *target) {
  for (int t = 0; t < N_NAMES && strcmp(names[t], target->name) != 0; t++) {
    const TargetInfo *before = target_find(names[t]);
    if (before->family == target->family && before->vector_floats == target->vector_floats &&
        before->has_fma == target->has_fma)
      return false;
  }
  return true;
}

/* Every kind at one width, and some at another, where the same is written more often: the largest kernels of all. Where
 * vectors are short they are several times as long and take half a minute: a few, each part and each kind of decay and
 * beta among them. */
static void add_states(KernelBench *bench) {
  const TargetInfo *target = bench->plan.target;
  if (!is_new_in_f32(target)) return;
  const bool has_wide = target->vector_floats > 4;
  for (uint8_t i = 0; i < (has_wide ? 48 : 24); i += has_wide ? i < 24 ? 1 : 7 : 5)
    kernel_add(bench, (KernelSpec){.family = KERNEL_STATE, .part = i / 6 % N_STATE_PARTS, .width = i < 24 ? 32 : 64,
                                   .fades = i % 2, .beta = i / 2 % 3});
  if (target->vector_floats > 1)
    kernel_add(bench, (KernelSpec){.family = KERNEL_STATE, .part = STATE_GIVES_ONE, .width = 64, .passes_caches = true});
  for (uint8_t i = 0; i < (has_wide ? 18 : 9); i += has_wide ? i < 9 ? 1 : 7 : 4)
    kernel_add(bench, (KernelSpec){.family = KERNEL_STATE_GRAD, .width = i < 9 ? 32 : 64, .fades = i % 3 > 0,
                                   .fades_by_rows = i % 3 > 1, .beta = i / 3 % 3});
}

static void add_everything(KernelBench *bench) {
  add_all_tiles(bench, LEAST_AND_MOST);
  add_whole_tiles(bench);
  add_rows(bench);
  add_reductions(bench);
  for (int transposes = 0; transposes < 2; transposes++)
    kernel_add(bench, (KernelSpec){.family = KERNEL_PACK, .width = 64, .pack_transposes = transposes});
  for (int64_t k = 1; k <= 768; k += 767 / 13)
    kernel_add(bench, (KernelSpec){.family = KERNEL_QUANTIZE, .k = k, .is_rotated = k % 2});
  for (uint8_t rows = 0; rows <= 8; rows++) kernel_add(bench, (KernelSpec){.family = KERNEL_DIRECT, .rows = rows});
  for (uint8_t width = 1; width <= 4; width++)
    kernel_add(bench, (KernelSpec){.family = KERNEL_DIRECT, .width = width, .y_is_line = width % 2});
  kernel_add(bench, (KernelSpec){.family = KERNEL_SOFTMAX});
  kernel_add(bench, (KernelSpec){.family = KERNEL_FINITE});
  add_states(bench);
}

// ---- objects ----

static void check_symbols(const char *name, const char *object) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)object;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(object + header->e_shoff);
  size_t n_functions = 0;
  for (int i = 0; i < header->e_shnum; i++) {
    cr_assert((sections[i].sh_flags & (SHF_WRITE | SHF_EXECINSTR)) != (SHF_WRITE | SHF_EXECINSTR));
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const Elf64_Sym *symbols = (const Elf64_Sym *)(object + sections[i].sh_offset);
    const char *texts = object + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 1; s < sections[i].sh_size / sizeof *symbols; s++) {
      cr_expect(symbols[s].st_shndx != SHN_UNDEF, "%s: the object needs %s", name, texts + symbols[s].st_name);
      n_functions += ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC;
      if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC) cr_expect(ELF64_ST_VISIBILITY(symbols[s].st_other) == STV_HIDDEN);
    }
  }
  cr_assert(n_functions > 60);
}

static LLVMMemoryBufferRef object_of_everything(const char *name) {
  KernelBench bench = kernel_bench_new(name);
  add_everything(&bench);
  LLVMMemoryBufferRef object = emit(&bench, false);
  kernel_bench_free(&bench);
  return object;
}

static void check_same_again(LLVMMemoryBufferRef object, const char *name) {
  LLVMMemoryBufferRef again = object_of_everything(name);
  const size_t size = LLVMGetBufferSize(object);
  cr_assert(size == LLVMGetBufferSize(again));
  cr_assert(memcmp(LLVMGetBufferStart(object), LLVMGetBufferStart(again), size) == 0);
  LLVMDisposeMemoryBuffer(again);
}

Test(codegen, objects_need_nothing_and_are_the_same_every_time) {
  for (int t = 0; t < N_NAMES; t++) {
    LLVMMemoryBufferRef object = object_of_everything(names[t]);
    check_symbols(names[t], LLVMGetBufferStart(object));
    if (strcmp(names[t], "x86-64-v3") == 0) check_same_again(object, names[t]);
    LLVMDisposeMemoryBuffer(object);
  }
}

// ---- loops of tiles ----

/* Where the block that begins at `at` ends: at the next label. */
static const char *block_end(const char *at) {
  for (const char *line = strchr(at, '\n'); line; line = strchr(line + 1, '\n'))
    if (line[1] == '.' && line[2] == 'L') return line + 1;
  return at + strlen(at);
}

static bool contains(const char *begin, const char *end, const char *text) {
  const char *at = strstr(begin, text);
  return at && at < end;
}

/* How assemblers write a fused product, and what lies on the stack. */
static const char *product_of(const TargetInfo *target) {
  if (target->family == TFM_FAMILY_X86_64) return target->has_fma ? "vfmadd" : "mulps";
  if (target->family == TFM_FAMILY_AARCH64) return "fmla";
  return target->vector_floats > 4 ? "vfma" : "fmadd";
}

static const char *stack_of(const TargetInfo *target) {
  return target->family == TFM_FAMILY_X86_64 ? "%rsp" : target->family == TFM_FAMILY_AARCH64 ? "[sp" : "(sp)";
}

/* Consumes the bench. Products stand in loops only: two of each tile, or more. */
static void check_loops(KernelBench *bench, const char *multiply) {
  const TargetInfo *target = bench->plan.target;
  LLVMMemoryBufferRef assembly = emit(bench, true);
  size_t n_loops = 0;
  for (const char *at = LLVMGetBufferStart(assembly), *end; (at = strstr(at, "\n.LBB")); at = end - 1) {
    end = block_end(++at);
    if (!contains(at, end, multiply)) continue;
    n_loops++;
    cr_expect(!contains(at, end, "Spill") && !contains(at, end, "Reload") && !contains(at, end, stack_of(target)),
              "%s: a loop of a tile uses the stack: %.*s", target->name, (int)(end - at), at);
  }
  cr_assert(n_loops >= 2 * bench->plan.kernels.n, "%zu loops in %zu tiles", n_loops, bench->plan.kernels.n);
  LLVMDisposeMemoryBuffer(assembly);
  kernel_bench_free(bench);
}

Test(codegen, tiles_stay_in_registers) {
  for (int t = 0; t < N_NAMES; t++) {
    KernelBench bench = kernel_bench_new(names[t]);
    add_all_tiles(&bench, ALL_HEIGHTS);
    check_loops(&bench, product_of(bench.plan.target));
  }
}

/* A tile of so many rows that takes a whole panel. */
static KernelSpec whole_panel(uint8_t rows, uint8_t width) {
  return (KernelSpec){.family = KERNEL_TILE, .rows = rows, .width = width, .a_stride = 784, .b_stride = width,
                      .has_whole_panel = true};
}

static void check_whole_panels(const TargetInfo *target) {
  KernelBench of_floats = kernel_bench_new(target->name), of_bytes = kernel_bench_new(target->name);
  for (uint8_t width = 32; width <= 64; width = (uint8_t)(width + 16))
    for (uint8_t rows = 1; rows <= 2; rows++) {
      KernelSpec spec = whole_panel(rows, width);
      spec.chain = TFM_SHORT_CHAIN;
      if (rows == 1 || width < 64) kernel_add(&of_floats, spec);
      spec.width = (uint8_t)(2 * width); /* two panels: the sums of 128 columns would not stay */
      if (rows == 1 && width < 64) kernel_add(&of_floats, spec);
      spec = whole_panel(rows, width);
      spec.b_form = TFM_FORM_INT8;
      spec.in_pairs = target->dot_pairs != NULL;
      spec.k = target->dot_pairs ? 768 : 0;
      if (rows == 1) kernel_add(&of_bytes, spec);
      spec.width = (uint8_t)(2 * width);
      if (rows == 1 && width < 64) kernel_add(&of_bytes, spec);
    }
  check_loops(&of_floats, product_of(target));
  check_loops(&of_bytes, target->dot_pairs ? "vpmaddubsw" : "vpdpbusd");
}

Test(codegen, whole_panels_stay_in_registers) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (target->reads_whole_panels) check_whole_panels(target);
}

// ---- host and errors ----

Test(codegen, host) {
  const TargetInfo *host = host_target();
  Arena *arena = arena_create();
  cr_assert(!host_lacks(host) && !host_why_not(arena, host) && !host_refuses(arena, host));
  cr_assert(host_cpu_name(arena)[0]);
  arena_destroy(arena);
}

Test(codegen, hosts_lack_what_they_lack) {
  Arena *arena = arena_create();
  TargetInfo other = *host_target();
  other.family = TFM_FAMILY_ANY;
  cr_assert(host_lacks(&other));
  cr_assert(strstr(host_refuses(arena, &other), " is code for another machine; this machine is "));
  other = *host_target();
  other.features = UINT32_C(1) << 31; /* that no row has */
  cr_assert(strstr(host_why_not(arena, &other), "the CPU lacks "));
  cr_assert(strstr(host_refuses(arena, &other), ": it lacks "));
  arena_destroy(arena);
}

/* Each family has one baseline, which needs no feature, and one row for libraries; its triple finds it again. */
Test(codegen, families_have_their_rows) {
  for (const FamilyInfo *family = cpu_families; family->family != TFM_FAMILY_ANY; family++) {
    const TargetInfo *library = target_for_libraries(family->family), *least = target_baseline(library);
    int n_least = 0, n_library = 0;
    for (const TargetInfo *target = targets; target->name; target++) {
      n_least += target->family == family->family && target->is_baseline;
      n_library += target->family == family->family && target->is_for_libraries;
    }
    cr_expect(n_least == 1 && n_library == 1 && !least->features, "%s", family->name);
    cr_expect_eq(family_find(family->triple), family);
    cr_expect_eq(target_family(library), family);
  }
  cr_expect_null(family_find("unknown"));
  cr_expect_null(family_find("aarch64-unknown-linux-gnu"));
}

Test(codegen, errors_are_reported) {
  KernelBench bench = kernel_bench_new("x86-64");
  TargetInfo other = targets[0];
  other.family = TFM_FAMILY_ANY;
  cr_assert(!target_machine(&bench.diag, &other));
  cr_assert(bench.diag.n_errors == 1 && bench.diag.messages.items[0].code == DIAG_TOOL);
  bench.plan.target = &other;
  cr_assert(!jit_create(bench.arena, &bench.diag, &bench.plan, NULL, NULL));
  cr_assert(bench.diag.messages.items[1].code == DIAG_CPU);
  kernel_bench_free(&bench);
}

/* No page of the process is writable and executable while kernels are in memory. */
Test(codegen, no_writable_code) {
  KernelBench bench = kernel_bench_new(host_target()->name);
  add_rows(&bench);
  kernels_compile(&bench);
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  size_t n_executable = 0;
  cr_assert(maps);
  while (fgets(line, sizeof line, maps)) {
    const char *rights = strchr(line, ' ');
    if (!rights || rights[3] != 'x') continue;
    n_executable++;
    cr_assert(rights[2] != 'w', "%s", line);
  }
  fclose(maps);
  cr_assert(n_executable > 0);
  kernel_bench_free(&bench);
}

Test(codegen, statistics) {
  KernelBench bench = kernel_bench_new(host_target()->name);
  add_all_tiles(&bench, ALL_HEIGHTS);
  kernels_compile(&bench);
  cr_assert(bench.statistics.n_kernels == bench.plan.kernels.n);
  cr_assert(bench.statistics.code_bytes > 1000 && bench.statistics.seconds > 0);
  if (getenv("TFM_TEST_VERBOSE"))
    printf("%u tiles: %.3f s, %llu bytes\n", bench.statistics.n_kernels, bench.statistics.seconds,
           (unsigned long long)bench.statistics.code_bytes);
  kernel_bench_free(&bench);
}
