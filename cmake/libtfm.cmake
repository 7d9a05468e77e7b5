# libtfm: models compiled while a program runs. It contains no LLVM: code is made by tfmc in a child process or by
# tfm-worker.so, which is loaded only for callers that want no child. Both are found relative to libtfm itself.
include(GNUInstallDirs)
set(tfm_worker_folder ${CMAKE_INSTALL_LIBDIR}/tfm)
file(RELATIVE_PATH tfm_command_from_library /${CMAKE_INSTALL_LIBDIR} /${CMAKE_INSTALL_BINDIR}/tfmc)

file(GLOB api_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/compiler/api/*.c)
set(api_definitions TFM_VERSION="${PROJECT_VERSION}" TFM_COMMAND_FROM_LIBRARY="${tfm_command_from_library}"
  TFM_WORKER_FROM_LIBRARY="tfm/tfm-worker.so")
target_compile_definitions(tfm_api PRIVATE ${api_definitions})

add_library(tfm_shared SHARED ${api_sources})
target_include_directories(tfm_shared PRIVATE ${CMAKE_SOURCE_DIR}/compiler
  PUBLIC ${CMAKE_SOURCE_DIR}/compiler/api/include ${runtime_includes})
target_compile_definitions(tfm_shared PRIVATE ${api_definitions})
target_link_libraries(tfm_shared PRIVATE tfm_options -Wl,--whole-archive tfm_library_runtime -Wl,--no-whole-archive m pthread
  ${CMAKE_DL_LIBS})
target_link_options(tfm_shared PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libtfm.map)
if(NOT TFM_SANITIZE)
  target_link_options(tfm_shared PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(tfm_shared PROPERTIES OUTPUT_NAME tfm VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/libtfm.map)

file(WRITE ${CMAKE_BINARY_DIR}/generated/worker.c "int tfm_worker(int, char **, int, int, int);\n\
int (*const tfm_worker_is_needed)(int, char **, int, int, int) = tfm_worker;\n")
add_library(tfm_worker MODULE ${CMAKE_BINARY_DIR}/generated/worker.c)
target_link_libraries(tfm_worker PRIVATE tfm_cli)
target_link_options(tfm_worker PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/worker.map)
set_target_properties(tfm_worker PROPERTIES PREFIX "" OUTPUT_NAME tfm-worker
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tfm LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/worker.map)

# The same sources with the types in them, for the comparison with tests/meta/libtfm.abi.
add_library(tfm_abi SHARED EXCLUDE_FROM_ALL ${api_sources} ${runtime_sources})
target_include_directories(tfm_abi PRIVATE ${CMAKE_SOURCE_DIR}/compiler ${CMAKE_SOURCE_DIR}/compiler/api/include
  ${runtime_includes} ${runtime_rooms})
target_compile_definitions(tfm_abi PRIVATE _GNU_SOURCE ${api_definitions})
target_compile_options(tfm_abi PRIVATE -g -O0 -w -fvisibility=hidden -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
target_link_libraries(tfm_abi PRIVATE m pthread ${CMAKE_DL_LIBS})
target_link_options(tfm_abi PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libtfm.map)
