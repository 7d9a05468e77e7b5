# The runtimes that tfmc puts into libraries: one archive for each family of CPUs (runtime/include/tfm/abi/families.def),
# that of this machine and those that a C compiler is there for. Debian calls them TRIPLE-gcc (gcc-aarch64-linux-gnu);
# -DTFM_CC_AARCH64=/path/to/gcc names another, OFF leaves the family out. That of WebAssembly is made by clang (wasm.cmake).
include(cmake/wasm.cmake)

# Options beyond those of all families. Atomics stay in line on AArch64: what gcc calls instead would be of libgcc, and
# would have a constructor. RISC-V's relaxation, code that a linker shortens, needs one that does
# (compiler/target/relocations.def).
set(tfm_machine_options_x86_64 -fcf-protection=full)
set(tfm_machine_options_aarch64 -mbranch-protection=standard -mno-outline-atomics)
set(tfm_machine_options_riscv64 -march=rv64gc -mabi=lp64d -mno-relax)

# tfm_outside: adds to the target the table tfm_outside_FAMILY: what `library`, the whole runtime as a shared library,
# calls of the system's, and the version of each function that the linker chose.
function(tfm_outside target family library)
  if(NOT CMAKE_READELF)
    message(FATAL_ERROR "readelf, of binutils, is missing")
  endif()
  set(out ${CMAKE_BINARY_DIR}/generated/outside_${family}.c)
  add_custom_command(OUTPUT ${out} DEPENDS ${ARGN} ${library} ${CMAKE_SOURCE_DIR}/cmake/outside.cmake
    COMMAND ${CMAKE_COMMAND} -DREADELF=${CMAKE_READELF} -DIN=${library} -DOUT=${out} -DSYMBOL=tfm_outside_${family}
            -P ${CMAKE_SOURCE_DIR}/cmake/outside.cmake)
  target_sources(${target} PRIVATE ${out})
endfunction()

# tfm_runtime_archive: compiles files of the runtime for another machine to `folder`/libtfm_runtime.a.
#
# COMMAND  the compiler and its options for all files; a file has besides those of its room (tfm_room)
# WITHOUT  those of rooms that the compiler does not know, a regular expression
# FAST     the files that are not compiled for little room, a regular expression; left out: it is their room's to say
# AR       the operation of ar
function(tfm_runtime_archive machine folder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "WITHOUT;FAST;AR" "FILES;COMMAND")
  file(MAKE_DIRECTORY ${folder})
  set(objects "")
  foreach(file ${arg_FILES})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/runtime ${file})
    string(REPLACE / _ name ${name})
    get_source_file_property(of_file ${file} COMPILE_OPTIONS)
    if(NOT of_file)
      set(of_file "")
    endif()
    if(arg_WITHOUT)
      list(FILTER of_file EXCLUDE REGEX "${arg_WITHOUT}")
    endif()
    if(arg_FAST AND NOT file MATCHES "${arg_FAST}")
      list(APPEND of_file -Os)
    endif()
    # What is for gcc alone, compilers of families are.
    string(REPLACE "$<C_COMPILER_ID:GNU>" 1 command "${arg_COMMAND};${of_file}")
    add_custom_command(OUTPUT ${folder}/${name}.o DEPENDS ${file} DEPFILE ${folder}/${name}.d
      COMMAND ${CMAKE_C_COMPILER_LAUNCHER} "${command}" -MD -MF ${folder}/${name}.d -c ${file} -o ${folder}/${name}.o
      COMMENT "Compiling ${name} for ${machine}" COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND objects ${folder}/${name}.o)
  endforeach()
  set(archive ${folder}/libtfm_runtime.a)
  add_custom_command(OUTPUT ${archive} DEPENDS ${objects}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} ${arg_AR} ${archive} ${objects} VERBATIM)
endfunction()

# tfm_cross_runtime: the files of `runtime`, a static library for this machine, for another family, with the options that
# they have there: `folder`/libtfm_runtime.a and, linked as a whole, `folder`/whole.so.
function(tfm_cross_runtime runtime compiler machine folder)
  get_target_property(files ${runtime} SOURCES)
  get_target_property(options ${runtime} COMPILE_OPTIONS)
  get_target_property(includes ${runtime} INCLUDE_DIRECTORIES)
  list(REMOVE_ITEM options ${tfm_machine_options_${CMAKE_SYSTEM_PROCESSOR}})
  list(TRANSFORM includes PREPEND -I)
  tfm_runtime_archive(${machine} ${folder} AR rcD FILES ${files}
    COMMAND ${compiler} ${includes} -std=c17 -fPIC -DNDEBUG -D_GNU_SOURCE ${options} ${tfm_machine_options_${machine}})
  add_custom_command(OUTPUT ${folder}/whole.so DEPENDS ${folder}/libtfm_runtime.a
    COMMAND ${compiler} -shared -nostartfiles -o ${folder}/whole.so
            -Wl,--whole-archive ${folder}/libtfm_runtime.a -Wl,--no-whole-archive -lm -lpthread VERBATIM)
endfunction()

# tfm_runtimes: embeds in `target` the archive of `runtime` for each family, and writes runtime_archives.def, which lists
# them.
function(tfm_runtimes target runtime)
  add_library(tfm_whole_runtime MODULE ${CMAKE_SOURCE_DIR}/cmake/empty.c)
  target_link_libraries(tfm_whole_runtime PRIVATE -Wl,--whole-archive ${runtime} -Wl,--no-whole-archive m pthread)
  target_link_options(tfm_whole_runtime PRIVATE -nostartfiles)
  set(table ${CMAKE_SOURCE_DIR}/runtime/include/tfm/abi/families.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
  file(STRINGS ${table} rows REGEX "^FAMILY")
  set(list "")
  set(installed "")
  foreach(row ${rows})
    string(REGEX MATCH "^FAMILY.([A-Z0-9_]+), [0-9]+, \"([^\"]+)\".*, \"([^\"]+)\".$" row "${row}")
    set(family ${CMAKE_MATCH_1})
    set(machine ${CMAKE_MATCH_2})
    set(triple ${CMAKE_MATCH_3})
    if(machine STREQUAL CMAKE_SYSTEM_PROCESSOR)
      tfm_incbin(${target} ${runtime} ${CMAKE_BINARY_DIR}/lib${runtime}.a tfm_runtime_${family})
      tfm_outside(${target} ${family} $<TARGET_FILE:tfm_whole_runtime> tfm_whole_runtime)
      string(APPEND list "RUNTIME(${family})\n")
      continue()
    endif()
    if(family STREQUAL WASM32)
      tfm_wasm_compiler()
      if(NOT TFM_CC_WASM32)
        message(STATUS "no runtime for wasm32: there is no clang with WebAssembly's back end")
        continue()
      endif()
      set(folder ${CMAKE_BINARY_DIR}/runtimes/wasm32)
      tfm_wasm_runtime(${runtime} ${TFM_CC_WASM32} ${folder})
      add_custom_target(tfm_runtime_for_wasm32 DEPENDS ${folder}/libtfm_runtime.a)
      tfm_incbin(${target} tfm_runtime_for_wasm32 ${folder}/libtfm_runtime.a tfm_runtime_WASM32)
      tfm_no_outside(${target} WASM32)
      string(APPEND list "RUNTIME(WASM32)\n")
      continue()
    endif()
    find_program(TFM_CC_${family} ${triple}-gcc DOC "the C compiler for the runtime of ${triple}; OFF: none")
    if(NOT TFM_CC_${family})
      message(STATUS "no runtime for ${triple}: ${triple}-gcc is missing")
      continue()
    endif()
    set(folder ${CMAKE_BINARY_DIR}/runtimes/${triple})
    tfm_cross_runtime(${runtime} ${TFM_CC_${family}} ${machine} ${folder})
    add_custom_target(tfm_runtime_for_${machine} DEPENDS ${folder}/libtfm_runtime.a ${folder}/whole.so)
    tfm_incbin(${target} tfm_runtime_for_${machine} ${folder}/libtfm_runtime.a tfm_runtime_${family})
    tfm_outside(${target} ${family} ${folder}/whole.so tfm_runtime_for_${machine})
    string(APPEND list "RUNTIME(${family})\n")
    list(APPEND installed ${triple})
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/aot/runtime_archives.def CONTENT "${list}")
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated/aot)
  set(tfm_other_runtimes ${installed} PARENT_SCOPE)
endfunction()
