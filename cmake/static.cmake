# TFM_LLVM_STATIC: LLVM's archives, and those of all that it and tfmc need, so that tfmc runs wherever libc and libgcc_s
# are. Debian's archives of LLVM name z3 and libxml2 too, of which nothing is reached. libgcc_s stays shared: its static
# form needs a glibc of 2.35. The same holds for arc4random, which libstdc++ calls and cmake/arc4random.c is.
execute_process(COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static --libfiles x86 aarch64 riscv webassembly orcjit passes
  OUTPUT_VARIABLE llvm_archives OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(llvm_archives)
function(tfm_archive variable name)
  find_library(TFM_ARCHIVE_${name} lib${name}.a)
  if(NOT TFM_ARCHIVE_${name})
    message(FATAL_ERROR "TFM_LLVM_STATIC needs lib${name}.a (scripts/install-dependencies.sh wheels)")
  endif()
  set(${variable} ${TFM_ARCHIVE_${name}} PARENT_SCOPE)
endfunction()
tfm_archive(z z)
tfm_archive(zstd zstd)
if(CMAKE_SYSROOT) # a cross compiler looks for its own, which Debian has no package of
  file(GLOB of_compiler ${CMAKE_SYSROOT}/usr/lib/gcc/${CMAKE_LIBRARY_ARCHITECTURE}/*)
  target_link_directories(tfm_llvm INTERFACE ${of_compiler})
endif()
target_link_libraries(tfm_llvm INTERFACE -Wl,--start-group ${llvm_archives} -Wl,--end-group ${z} ${zstd} -l:libstdc++.a m)
target_link_options(tfm_llvm INTERFACE -Wl,--gc-sections -Wl,--exclude-libs,ALL)
# Names that link lines use become these archives.
foreach(name jansson popt z)
  tfm_archive(file ${name})
  add_library(${name} INTERFACE IMPORTED)
  target_link_libraries(${name} INTERFACE ${file})
endforeach()
