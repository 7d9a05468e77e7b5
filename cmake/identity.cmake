# cmake -DOUT=file.c -DROOT=folder -DVERSION=text "-DFILES=a;b" -P identity.cmake: what says which code a compiler
# generates: its version and a hash of the sources that decide it, as the C string code_identity.
set(all "")
foreach(file IN LISTS FILES)
  file(SHA256 ${file} hash)
  file(RELATIVE_PATH name ${ROOT} ${file})
  string(APPEND all "${name} ${hash}\n")
endforeach()
string(SHA256 identity "${all}")
file(WRITE ${OUT} "extern const char code_identity[];\nconst char code_identity[] = \"${VERSION} ${identity}\";\n")
