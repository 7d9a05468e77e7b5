# usage: cmake -DREADELF=program -DIN=library -DOUT=file.c -P outside.cmake
# Writes the functions of other libraries that a shared library calls as a table in C: name, library and version of each.
# What the system's linker bound the library to is what tfmc binds the libraries to that it writes without a linker.
execute_process(COMMAND ${READELF} -VW ${IN} OUTPUT_VARIABLE versions COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${READELF} --dyn-syms -W ${IN} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "File: [^ ]+|Name: [^ ]+ +Flags: [^ ]+ +Version: [0-9]+" rows "${versions}")
foreach(row ${rows})
  if(row MATCHES "^File: (.+)$")
    set(file ${CMAKE_MATCH_1})
  elseif(row MATCHES "Version: ([0-9]+)$")
    set(file_${CMAKE_MATCH_1} ${file})
  endif()
endforeach()
set(text "")
string(REGEX MATCHALL "FUNC +GLOBAL +DEFAULT +UND +[^@ ]+@[^ ]+ \\([0-9]+\\)" rows "${symbols}")
foreach(row ${rows})
  string(REGEX MATCH "UND +([^@ ]+)@([^ ]+) \\(([0-9]+)\\)" row "${row}")
  string(APPEND text "  {\"${CMAKE_MATCH_1}\", \"${file_${CMAKE_MATCH_3}}\", \"${CMAKE_MATCH_2}\"},\n")
endforeach()
if(text STREQUAL "")
  message(FATAL_ERROR "${READELF} shows no functions that ${IN} calls")
endif()
file(WRITE ${OUT} "extern const char *const tfm_outside_functions[][3];
const char *const tfm_outside_functions[][3] = {\n${text}  {0, 0, 0}};\n")
