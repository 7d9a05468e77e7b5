# What `make install` installs: the command, libtfm, headers, and what CMake and pkg-config need to find them. All paths
# are relative to the file that names them, so an installed tree may be moved.
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
configure_file(${CMAKE_SOURCE_DIR}/cmake/tfm.pc.in ${generated}/tfm.pc @ONLY)
configure_file(${CMAKE_SOURCE_DIR}/cmake/TfmConfig.cmake.in ${generated}/TfmConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${generated}/TfmConfigVersion.cmake VERSION ${PROJECT_VERSION}
  COMPATIBILITY SameMinorVersion)

install(TARGETS tfmc RUNTIME)
install(TARGETS tfm_shared LIBRARY)
install(TARGETS tfm_worker LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tfm)
install(FILES $<TARGET_FILE:tfm_library_runtime> DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libtfm_runtime.a)
install(DIRECTORY runtime/include/tfm ${generated}/include/tfm compiler/api/include/tfm
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h PATTERN *.def PATTERN generate_options.def EXCLUDE)
install(FILES ${generated}/tfm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
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
