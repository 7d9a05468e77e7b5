# usage: cmake -DOUT=file.c -DROOT=folder -DVERSION=text "-DFILES=a;b" -P identity.cmake
# Writes the C string code_identity: the version, and a hash over the names and contents of the files that decide which
# code the compiler generates. Names are relative to ROOT, so the string does not depend on where the sources lie.
set(all "")
foreach(file IN LISTS FILES)
  file(SHA256 ${file} hash)
  file(RELATIVE_PATH name ${ROOT} ${file})
  string(APPEND all "${name} ${hash}\n")
endforeach()
string(SHA256 identity "${all}")
file(WRITE ${OUT} "extern const char code_identity[];\nconst char code_identity[] = \"${VERSION} ${identity}\";\n")
