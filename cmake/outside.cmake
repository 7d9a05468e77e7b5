# usage: cmake -DREADELF=program -DIN=library -DOUT=file.c -DSYMBOL=name -P outside.cmake
# Writes the functions and objects of other libraries that a shared library takes as a table in C: name, library and
# version of each.
# What the system's linker bound the library to is what tfmc binds the libraries to that it writes without a linker. Read
# are the tables that GNU's readelf and LLVM's print alike: symbols in their order, and the version number of each.
set(ENV{LC_ALL} C)
execute_process(COMMAND ${READELF} -VW ${IN} OUTPUT_VARIABLE versions COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${READELF} --dyn-syms -W ${IN} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "File: [^ ]+|Name: [^ ]+ +Flags: [^ ]+ +Version: [0-9]+" rows "${versions}")
foreach(row ${rows})
  if(row MATCHES "^File: (.+)$")
    set(file ${CMAKE_MATCH_1})
  elseif(row MATCHES "Name: ([^ ]+) .*Version: ([0-9]+)$")
    set(file_${CMAKE_MATCH_2} ${file})
    set(version_${CMAKE_MATCH_2} ${CMAKE_MATCH_1})
  endif()
endforeach()
string(REGEX REPLACE "^.*Version symbols section" "" numbers "${versions}")
string(REGEX REPLACE "Version (needs|definition).*" "" numbers "${numbers}")
string(REGEX MATCHALL "[0-9a-f]+h? +\\([*A-Za-z]" numbers "${numbers}")
string(REGEX MATCHALL "[0-9]+: [0-9a-f]+ +[0-9]+ [A-Z]+ +[A-Z]+ +[A-Z]+ +[^ ]+ [^\n]*" rows "${symbols}")
set(text "")
foreach(row number IN ZIP_LISTS rows numbers)
  string(REGEX MATCH "^[0-9a-f]+" number "${number}")
  math(EXPR number "0x${number}")
  if(row MATCHES "(FUNC|OBJECT) +GLOBAL +DEFAULT +UND +([^@ ]+)" AND DEFINED file_${number})
    string(APPEND text "  {\"${CMAKE_MATCH_2}\", \"${file_${number}}\", \"${version_${number}}\"},\n")
  endif()
endforeach()
if(text STREQUAL "")
  message(FATAL_ERROR "${READELF} shows no functions that ${IN} calls")
endif()
file(WRITE ${OUT} "extern const char *const ${SYMBOL}[][3];
const char *const ${SYMBOL}[][3] = {\n${text}  {0, 0, 0}};\n")
