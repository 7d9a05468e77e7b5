# usage: cmake -DIN=file -DOUT=file.c -DSYMBOL=name -P embed.cmake
# Writes the bytes of a file as a C array that ends with a NUL, and its size without the NUL.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "extern const char ${SYMBOL}[];\nextern const unsigned ${SYMBOL}_size;\n"
  "const char ${SYMBOL}[] = {\n${bytes}0};\nconst unsigned ${SYMBOL}_size = sizeof ${SYMBOL} - 1;\n")
