# What `make install` installs: the command, libtfm, headers, and what CMake and pkg-config need to find them. All paths
# are relative to the file that names them, so an installed tree may be moved; below /usr, tfm.pc names that.
foreach(form man bash zsh fish)
  set(file ${CMAKE_BINARY_DIR}/generated/tfmc.${form})
  add_custom_command(OUTPUT ${file} COMMAND tfmc document ${form} > ${file} DEPENDS tfmc VERBATIM)
  list(APPEND documents ${file})
endforeach()
add_custom_target(tfm_documents DEPENDS ${documents})
add_custom_target(install_parts DEPENDS tfmc tfm_shared tfm_worker tfm_library_runtime tfm_documents)

set(TFM_PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/Tfm)
foreach(folder BINDIR LIBDIR INCLUDEDIR)
  file(RELATIVE_PATH TFM_${folder}_FROM_PACKAGE /${TFM_PACKAGE_FOLDER} /${CMAKE_INSTALL_${folder}})
endforeach()
file(RELATIVE_PATH TFM_PREFIX_FROM_PKGCONFIG /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(generated ${CMAKE_BINARY_DIR}/generated)
set(TFM_PC_PREFIX "\${pcfiledir}/${TFM_PREFIX_FROM_PKGCONFIG}")
configure_file(${CMAKE_SOURCE_DIR}/cmake/tfm.pc.in ${generated}/tfm.pc @ONLY)
# pkg-config leaves out the folders that compilers search by themselves, if it sees them by their own names.
set(TFM_PC_PREFIX /usr)
configure_file(${CMAKE_SOURCE_DIR}/cmake/tfm.pc.in ${generated}/usr/tfm.pc @ONLY)
configure_file(${CMAKE_SOURCE_DIR}/cmake/TfmConfig.cmake.in ${generated}/TfmConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${generated}/TfmConfigVersion.cmake VERSION ${PROJECT_VERSION}
  COMPATIBILITY SameMinorVersion)

install(TARGETS tfmc RUNTIME)
install(TARGETS tfm_shared LIBRARY)
install(TARGETS tfm_worker LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tfm)
install(FILES $<TARGET_FILE:tfm_library_runtime> DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libtfm_runtime.a)
foreach(triple ${tfm_other_runtimes})
  install(FILES ${CMAKE_BINARY_DIR}/runtimes/${triple}/libtfm_runtime.a DESTINATION ${CMAKE_INSTALL_LIBDIR}/tfm
    RENAME libtfm_runtime-${triple}.a)
endforeach()
install(DIRECTORY runtime/include/tfm ${generated}/include/tfm compiler/api/include/tfm
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h PATTERN *.def PATTERN generate_options.def EXCLUDE
  PATTERN generation_keys.def EXCLUDE)
install(CODE "set(of_prefix \"\")
if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\")
  set(of_prefix /usr)
endif()
file(INSTALL ${generated}\${of_prefix}/tfm.pc DESTINATION \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig)")
# Headers that lay in tfm/ before they had a folder: who includes them there gets them still.
foreach(header program library kernels gradient_steps packing packed_program tiles train_formula weights_file)
  file(CONFIGURE OUTPUT ${generated}/moved/tfm/${header}.h CONTENT "#include \"tfm/abi/${header}.h\"\n")
endforeach()
file(CONFIGURE OUTPUT ${generated}/moved/tfm/steps.def CONTENT "#include \"tfm/abi/steps.def\"\n")
file(CONFIGURE OUTPUT ${generated}/moved/tfm/train.h CONTENT "#include \"tfm/abi/train_tables.h\"\n")
install(DIRECTORY ${generated}/moved/tfm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${generated}/TfmConfig.cmake ${generated}/TfmConfigVersion.cmake cmake/TfmAddModel.cmake
  DESTINATION ${TFM_PACKAGE_FOLDER})
install(FILES ${generated}/tfmc.man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME tfmc.1)
install(FILES ${generated}/tfmc.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME tfmc)
install(FILES ${generated}/tfmc.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES LICENSE NOTICE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Packages of Debian have places of their own, in /usr.
install(CODE "set(share \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR})
set(zsh site-functions)
if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\")
  set(zsh vendor-completions)
  file(INSTALL ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION \${share}/doc/tfmc RENAME copyright)
endif()
file(INSTALL ${generated}/tfmc.zsh DESTINATION \${share}/zsh/\${zsh} RENAME _tfmc)")
