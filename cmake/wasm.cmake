# The runtime of WebAssembly modules (family WASM32): the files of the runtime that need no system, and
# runtime/freestanding in place of a C library. Any clang with WebAssembly's back end compiles it (14 and later were
# tried); nothing else is needed: no headers but clang's own, no linker, no SDK. -DTFM_CC_WASM32=/path/to/clang names
# one, OFF leaves the family out.

# Without files, threads and training.
set(tfm_not_for_modules /train/ /pool/pool.c /machine/processors.c /machine/x86.c /library/open_path.c /walk/all_drivers.c)
# What every browser since 2023 has. Roots are instructions: there is no errno.
set(tfm_module_options --target=wasm32 -nostdlibinc -std=c17 -DNDEBUG -D_GNU_SOURCE -DXXH_VECTOR=0 -O2 -g0 -mbulk-memory
  -mmutable-globals -mnontrapping-fptoint -msign-ext -msimd128 -ffp-contract=off -fno-math-errno -fno-strict-aliasing
  -ffunction-sections -fdata-sections -fvisibility=hidden -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)

# tfm_wasm_compiler: sets TFM_CC_WASM32 to a clang that compiles for wasm32, or to something false.
function(tfm_wasm_compiler)
  if(DEFINED CACHE{TFM_CC_WASM32})
    return()
  endif()
  foreach(name clang-19 clang clang-18 clang-17 clang-16 clang-15 clang-14)
    unset(found CACHE)
    find_program(found ${name})
    if(found)
      execute_process(COMMAND ${found} --target=wasm32 -nostdlibinc -x c -c /dev/null -o /dev/null RESULT_VARIABLE failed
        OUTPUT_QUIET ERROR_QUIET)
      if(NOT failed)
        break()
      endif()
    endif()
    set(found NOTFOUND)
  endforeach()
  set(TFM_CC_WASM32 ${found} CACHE FILEPATH "the clang for the runtime of wasm32; OFF: none")
  unset(found CACHE)
endfunction()

# Headers of the system's names, all of which are freestanding.h; xxhash.h as it is; options of generation whose pointers
# take slots, since a library holds them (tfm/abi/slot.h).
function(tfm_wasm_headers folder)
  foreach(name errno fcntl math sched stdio stdlib string time unistd sys/mman sys/stat sys/types)
    file(CONFIGURE OUTPUT ${folder}/${name}.h CONTENT "#include \"freestanding/freestanding.h\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/assert.h
    CONTENT "#define assert(condition) ((void)0)\n#define static_assert _Static_assert\n")
  find_file(TFM_XXHASH xxhash.h REQUIRED)
  configure_file(${TFM_XXHASH} ${folder}/xxhash.h COPYONLY)
  file(READ ${CMAKE_BINARY_DIR}/generated/include/tfm/generate_types.h text)
  string(REGEX REPLACE "\n  ((int|void) [(]?[*][^;]*);" "\n  TFM_SLOT(\\1);" text "${text}")
  string(REPLACE "#include <stdint.h>\n" "#include <stdint.h>\n#include \"tfm/abi/slot.h\"\n" text "${text}")
  file(GENERATE OUTPUT ${folder}/tfm/generate_types.h CONTENT "${text}")
endfunction()

# tfm_wasm_runtime: compiles the files of `runtime` to `folder`/libtfm_runtime.a.
function(tfm_wasm_runtime runtime compiler folder)
  get_target_property(files ${runtime} SOURCES)
  file(GLOB own CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/freestanding/*.c)
  foreach(left_out ${tfm_not_for_modules})
    list(FILTER files EXCLUDE REGEX "${left_out}")
  endforeach()
  tfm_wasm_headers(${folder}/include)
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/runtime/freestanding/texts.c PROPERTY COMPILE_OPTIONS -Os -fno-builtin)
  # Fast is what loops over numbers itself; the rest calls kernels.
  tfm_runtime_archive(wasm32 ${folder} AR rcSD FILES ${files} ${own} WITHOUT "unwind|C_COMPILER_ID"
    FAST "/decode/loops/|/steps/attention_int8"
    COMMAND ${compiler} ${tfm_module_options} -I${folder}/include -I${CMAKE_SOURCE_DIR}/runtime/include
            -I${CMAKE_BINARY_DIR}/generated/include -I${CMAKE_SOURCE_DIR}/runtime)
endfunction()

# Modules call nothing of a system.
function(tfm_no_outside target family)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/outside_${family}.c CONTENT
    "extern const char *const tfm_outside_${family}[][3];\nconst char *const tfm_outside_${family}[][3] = {{0, 0, 0}};\n")
  target_sources(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated/outside_${family}.c)
endfunction()
