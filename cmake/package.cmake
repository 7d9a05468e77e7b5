# `make package`: a Debian package of what `make install` installs. dpkg-shlibdeps finds out which packages the shared
# libraries come from (of tfmc libjansson4, libpopt0, zlib1g, libzstd1, libgcc-s1, libc6; of tfm-worker.so libllvm19
# too); `tfmc compile` also needs a C compiler that links, and `tfmc graph` the program `dot` for pictures.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tfmc)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler for Transformer models")
set(CPACK_PACKAGE_DESCRIPTION "A model in a small language and the weights that PyTorch saved become native code for the
CPU: run by the command tfmc, or as a shared library with a C header.
With libtfm, programs compile models while they run.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "the authors of tfmc <tfmc@localhost>" CACHE STRING "whom the Debian package names")
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "gcc | c-compiler, libc6-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS graphviz)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
file(WRITE ${CMAKE_BINARY_DIR}/generated/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/generated/triggers)
include(CPack)
