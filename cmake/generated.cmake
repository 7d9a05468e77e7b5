# What is generated in the build tree: scanner and parser, files embedded as arrays.
find_package(BISON 3.8 REQUIRED)
find_package(FLEX 2.6 REQUIRED)

function(tfm_parser target)
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/grammar/tfm.y)
    return()
  endif()
  set(dir ${CMAKE_BINARY_DIR}/generated/parse)
  file(MAKE_DIRECTORY ${dir})
  bison_target(tfm_y ${CMAKE_SOURCE_DIR}/grammar/tfm.y ${dir}/tfm.tab.c DEFINES_FILE ${dir}/tfm.tab.h
    COMPILE_FLAGS "-Werror -Wcounterexamples")
  flex_target(tfm_l ${CMAKE_SOURCE_DIR}/grammar/tfm.l ${dir}/tfm.lex.c DEFINES_FILE ${dir}/tfm.lex.h)
  add_flex_bison_dependency(tfm_l tfm_y)
  target_sources(${target} PRIVATE ${BISON_tfm_y_OUTPUTS} ${FLEX_tfm_l_OUTPUTS})
  set_source_files_properties(${dir}/tfm.tab.c ${dir}/tfm.lex.c PROPERTIES COMPILE_OPTIONS "-w")
  target_include_directories(${target} PRIVATE ${dir} ${CMAKE_SOURCE_DIR}/compiler/parse)
endfunction()

# tfm_embed: adds to the target a C file, made from `file`, that defines the array `symbol` and its `symbol`_size.
function(tfm_embed target file symbol)
  if(NOT EXISTS ${file})
    return()
  endif()
  set(out ${CMAKE_BINARY_DIR}/generated/${symbol}.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${file} -DOUT=${out} -DSYMBOL=${symbol} -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${file} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake)
  target_sources(${target} PRIVATE ${out})
endfunction()

# tfm_page: adds to the target the page of `tfmc explore`: the files of `folder`, the scripts in this order.
function(tfm_page target folder)
  set(out ${CMAKE_BINARY_DIR}/generated/explore_page.c)
  list(TRANSFORM ARGN PREPEND ${folder}/ OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DOUT=${out} "-DSCRIPTS=${ARGN}" -P ${CMAKE_SOURCE_DIR}/cmake/page.cmake
    DEPENDS ${files} ${folder}/page.css ${folder}/page.html ${CMAKE_SOURCE_DIR}/cmake/page.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()

# tfm_incbin: like tfm_embed for a large file that the target `maker` makes: the assembler reads it, and `symbol` and
# `symbol`_end stand around its bytes. A C array of that size would be slow to compile.
function(tfm_incbin target maker file symbol)
  set(out ${CMAKE_BINARY_DIR}/generated/${symbol}.c)
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT "__asm__(\".section .rodata\\n.balign 16\\n.global ${symbol}\\n${symbol}:\\n\"
        \".incbin \\\"${file}\\\"\\n.global ${symbol}_end\\n${symbol}_end:\\n.byte 0\\n.previous\\n\");
typedef int ${symbol}_is_in_the_section_above;
")
  target_sources(${target} PRIVATE ${out})
  set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS ${file} COMPILE_OPTIONS "-w")
  add_dependencies(${target} ${maker})
endfunction()

# tfm_code_identity: defines `code_identity`, which is equal for compilers that generate equal code for equal kernels:
# a hash of the sources that decide it. It is part of the key of the cache of compiled code.
function(tfm_code_identity target)
  foreach(folder base forms target graph plan codegen kernels)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/compiler/${folder}/*)
    list(APPEND files ${found})
  endforeach()
  file(GLOB abi CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/include/tfm/abi/*) # all: what they include is not followed
  list(APPEND files ${abi})
  set(out ${CMAKE_BINARY_DIR}/generated/code_identity.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DROOT=${CMAKE_SOURCE_DIR} -DVERSION=${PROJECT_VERSION} "-DFILES=${files}"
            -P ${CMAKE_SOURCE_DIR}/cmake/identity.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/identity.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()

# tfm_generate_types: writes generated/include/tfm/generate_types.h, where tfm_generate_options has a member for each
# row of generate_options.def. The rows are expanded by the preprocessor and then trimmed, so the header that users read has
# plain members with comments.
function(tfm_generate_types)
  set(folder ${CMAKE_SOURCE_DIR}/runtime/include/tfm)
  set(rows ${CMAKE_SOURCE_DIR}/cmake/generate_options.c)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/abi/generate_options.def ${rows})
  separate_arguments(rest NATIVE_COMMAND "${CMAKE_C_COMPILER_ARG1}") # of CC="ccache gcc"
  execute_process(COMMAND ${CMAKE_C_COMPILER} ${rest} -E -P -I ${folder}/abi ${rows} OUTPUT_VARIABLE text
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\" +\"" "" text "${text}") # a text of several pieces
  string(REGEX REPLACE "@[^@]*@[^@]*@ *@" "" text "${text}") # no member
  string(REGEX REPLACE "@ \"([^@]*)\" @ \"\" @" "@ \"\" @ \"\\1\" @" text "${text}")
  string(REGEX REPLACE "@ \"[^@]*\" @ \"([^@]*)\" @ ([^@]*;) @" "  /* \\1 */\n  \\2" text "${text}")
  string(REPLACE "\\n" "\n" text "${text}")
  string(REGEX REPLACE "\n\n+" "\n" text "${text}")
  string(REGEX REPLACE "^\n" "" TFM_GENERATE_OPTIONS "${text}")
  configure_file(${folder}/generate_types.h.in ${CMAKE_BINARY_DIR}/generated/include/tfm/generate_types.h @ONLY)
endfunction()
