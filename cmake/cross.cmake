# The toolchain of presets that build tfmc for another machine (arm64, riscv64): Debian's cross compiler, and packages of
# that machine in TFM_SYSROOT, which scripts/sysroot.sh unpacks. TFM_MACHINE is the machine as `uname -m` says it. What is
# built runs under qemu-user where the build itself runs it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${TFM_MACHINE})
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TFM_MACHINE TFM_SYSROOT)
if(NOT EXISTS ${TFM_SYSROOT}/complete)
  message(FATAL_ERROR "${TFM_SYSROOT} is no folder that scripts/sysroot.sh has made")
endif()
set(triple ${TFM_MACHINE}-linux-gnu)
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_SYSROOT ${TFM_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE ${triple})
# The C library of the packages, not the compiler's own, which may be older.
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT -L${TFM_SYSROOT}/usr/lib/${triple})
endforeach()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TFM_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${TFM_SYSROOT}/usr/lib/${triple}/pkgconfig:${TFM_SYSROOT}/usr/share/pkgconfig)
# Of Python the headers of that machine; the interpreter is this one's, which says nothing about them.
file(GLOB Python3_INCLUDE_DIR ${TFM_SYSROOT}/usr/include/python3.*)
find_program(TFM_EMULATOR NAMES qemu-${TFM_MACHINE} qemu-${TFM_MACHINE}-static)
if(TFM_EMULATOR)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${TFM_EMULATOR} -L ${TFM_SYSROOT})
endif()
