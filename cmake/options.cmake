# The compiler, and flags of everything: strict C17, warnings, sanitizers by TFM_SANITIZE, LLVM 19.
# The oldest that make check-all or a bare machine has built with.
set(oldest_GNU 12)
set(oldest_Clang 14)
if(NOT DEFINED oldest_${CMAKE_C_COMPILER_ID} OR CMAKE_C_COMPILER_VERSION VERSION_LESS oldest_${CMAKE_C_COMPILER_ID})
  message(FATAL_ERROR "${CMAKE_C_COMPILER} is ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}. tfmc is built by GCC "
    "${oldest_GNU} or Clang ${oldest_Clang}, or later: CC=gcc make, CC=clang-19 make")
endif()
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(TFM_SANITIZE "" CACHE STRING "sanitizers, separated by semicolons: address;undefined or thread")
option(TFM_FUZZ "build the fuzz targets (clang)" OFF)
set(TFM_TESTS AUTO CACHE STRING "build the tests: ON, OFF, or AUTO if what they need is there")
option(TFM_WERROR "warnings are errors" ON)

add_library(tfm_options INTERFACE)
target_compile_definitions(tfm_options INTERFACE _POSIX_C_SOURCE=200809L)
target_compile_options(tfm_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wformat=2 -Wvla -Wstrict-prototypes
  -fno-strict-aliasing -fvisibility=hidden)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # The result of this warning depends on what was inlined, with false alarms at -O2 and -O3. The analysis of clang,
  # which does not depend on the level, stays on.
  target_compile_options(tfm_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(TFM_WERROR)
  target_compile_options(tfm_options INTERFACE -Werror)
endif()
foreach(sanitizer ${TFM_SANITIZE})
  target_compile_options(tfm_options INTERFACE -fsanitize=${sanitizer} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tfm_options INTERFACE -fsanitize=${sanitizer})
endforeach()
if(TFM_FUZZ)
  target_compile_options(tfm_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# find_package(LLVM 19) is refused by LLVM's own version file, which wants the minor version too.
find_package(LLVM 19.1 REQUIRED CONFIG PATHS /usr/lib/llvm-19)
option(TFM_LLVM_STATIC "link LLVM and all other libraries but libc into tfmc, for wheels" OFF)
option(TFM_LLVM_ARCHIVES "link LLVM into tfmc, where its archives, libstdc++'s and libzstd are" OFF)
add_library(tfm_llvm INTERFACE)
target_include_directories(tfm_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
include(cmake/llvm.cmake)
