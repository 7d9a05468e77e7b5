# How LLVM comes into programs.
# - libLLVM.so: what has no option. The loader adds its address to 350,000 words of it each time a program starts, 30 ms.
# - TFM_LLVM_ARCHIVES (what `make` builds): its archives, in tfmc alone, which stands where it was linked and starts in
#   6 ms; unit tests and tools, which are linked more often than they run, take libLLVM.so. So does tfmc where something
#   is missing, and in builds for sanitizers. docs/decisions/0051-llvm-in-the-command.md
# - TFM_LLVM_STATIC (wheels): its archives, and those of all that it and tfmc need, so that tfmc runs wherever libc and
#   libgcc_s are. Debian's archives of LLVM name z3 and libxml2 too, of which nothing is reached. libgcc_s stays shared:
#   its static form needs a glibc of 2.35. The same holds for arc4random, which libstdc++ calls and cmake/arc4random.c is.
if(TFM_SANITIZE AND NOT TFM_LLVM_STATIC)
  set(TFM_LLVM_ARCHIVES OFF)
endif()
if(TFM_LLVM_STATIC OR TFM_LLVM_ARCHIVES)
  execute_process(
    COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static --libfiles
            x86 aarch64 riscv webassembly orcjit passes
    OUTPUT_VARIABLE llvm_archives OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE lacks_archives)
  separate_arguments(llvm_archives)
  set(llvm_archives -Wl,--start-group ${llvm_archives} -Wl,--end-group)
  if(lacks_archives AND TFM_LLVM_STATIC)
    message(FATAL_ERROR "TFM_LLVM_STATIC needs LLVM's archives")
  endif()
endif()

function(tfm_archive variable name)
  find_library(TFM_ARCHIVE_${name} lib${name}.a)
  if(NOT TFM_ARCHIVE_${name})
    message(FATAL_ERROR "TFM_LLVM_STATIC needs lib${name}.a (scripts/install-dependencies.sh wheels)")
  endif()
  set(${variable} ${TFM_ARCHIVE_${name}} PARENT_SCOPE)
endfunction()

# tfm_llvm_in_command: tfmc with LLVM inside. -no-pie: no word of its tables has to be changed at its start.
function(tfm_llvm_in_command target)
  if(TFM_LLVM_STATIC)
    target_sources(${target} PRIVATE cmake/arc4random.c)
  elseif(TFM_LLVM_ARCHIVES)
    set_target_properties(${target} PROPERTIES TFM_LLVM_INSIDE ON)
    target_link_options(${target} PRIVATE -Wl,--gc-sections -Wl,--exclude-libs,ALL)
  endif()
  if(TFM_LLVM_STATIC OR TFM_LLVM_ARCHIVES)
    target_link_options(${target} PRIVATE -no-pie)
  endif()
endfunction()

if(TFM_LLVM_STATIC)
  tfm_archive(z z)
  tfm_archive(zstd zstd)
  if(CMAKE_SYSROOT) # a cross compiler looks for its own, which Debian has no package of
    file(GLOB of_compiler ${CMAKE_SYSROOT}/usr/lib/gcc/${CMAKE_LIBRARY_ARCHITECTURE}/*)
    target_link_directories(tfm_llvm INTERFACE ${of_compiler})
  endif()
  target_link_libraries(tfm_llvm INTERFACE ${llvm_archives} ${z} ${zstd} -l:libstdc++.a m)
  target_link_options(tfm_llvm INTERFACE -Wl,--gc-sections -Wl,--exclude-libs,ALL)
  # Names that link lines use become these archives.
  foreach(name jansson popt z)
    tfm_archive(file ${name})
    add_library(${name} INTERFACE IMPORTED)
    target_link_libraries(${name} INTERFACE ${file})
  endforeach()
  return()
endif()

target_link_directories(tfm_llvm INTERFACE ${LLVM_LIBRARY_DIRS})
if(TFM_LLVM_ARCHIVES)
  find_library(TFM_ZSTD zstd)
  separate_arguments(rest NATIVE_COMMAND "${CMAKE_C_COMPILER_ARG1}") # of CC="ccache gcc"
  execute_process(COMMAND ${CMAKE_C_COMPILER} ${rest} -print-file-name=libstdc++.a
    OUTPUT_VARIABLE libstdcxx OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(lacks_archives OR NOT TFM_ZSTD OR NOT IS_ABSOLUTE "${libstdcxx}")
    message(STATUS "tfmc takes libLLVM.so: an archive of LLVM or libstdc++, or libzstd for linking, is missing")
    set(TFM_LLVM_ARCHIVES OFF)
  endif()
endif()
if(TFM_LLVM_ARCHIVES)
  set(inside "$<BOOL:$<TARGET_PROPERTY:TFM_LLVM_INSIDE>>")
  target_link_libraries(tfm_llvm INTERFACE
    "$<${inside}:${llvm_archives};z;${TFM_ZSTD};${libstdcxx};m>" "$<$<NOT:${inside}>:LLVM>")
else()
  target_link_libraries(tfm_llvm INTERFACE LLVM)
endif()
