# usage: cmake -DFOLDER=folder -DOUT=file.c -DSCRIPTS=a.js;b.js -P page.cmake
# Joins the scripts of the page of `tfmc explore` in this order, in one function, so that nothing of them is global. Writes
# them, page.css and page.html as C arrays, with the SHA-256 of script and style, which the policy of the page names.
function(add_array symbol text)
  string(HEX "${text}" hex)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(REGEX REPLACE "('\\\\x0a',)" "\\1\n" bytes "${bytes}") # a line of the array for each line of the text
  file(APPEND ${OUT} "extern const char ${symbol}[];\nconst char ${symbol}[] = {\n${bytes}0};\n")
endfunction()

# Line by line through a file, since CMake would change brackets and semicolons of a text that it holds in a list.
set(joined ${OUT}.joined)
file(WRITE ${joined} "(function () {\n'use strict';\n")
foreach(name ${SCRIPTS})
  file(READ ${FOLDER}/${name} text)
  file(APPEND ${joined} "${text}")
endforeach()
file(APPEND ${joined} "}());\n")

file(WRITE ${OUT} "")
file(READ ${joined} script)
# What only people read stays in the sources: indentation, and lines that are comments.
string(REGEX REPLACE "\n[ ]+" "\n" script "${script}")
string(REGEX REPLACE "\n//[^\n]*" "" script "${script}")
string(REGEX REPLACE "\n\n+" "\n" script "${script}")
file(READ ${FOLDER}/page.css style)
file(READ ${FOLDER}/page.html body)
add_array(explore_script "${script}")
add_array(explore_style "${style}")
add_array(explore_body "${body}")
string(SHA256 script_hash "${script}")
string(SHA256 style_hash "${style}")
file(APPEND ${OUT} "extern const char *const explore_script_hash, *const explore_style_hash;\n"
  "const char *const explore_script_hash = \"${script_hash}\", *const explore_style_hash = \"${style_hash}\";\n")
