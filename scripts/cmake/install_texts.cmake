# Run by `cmake --install`: manual pages, completion scripts and schemas, as the built tools print them.
cmake_policy(VERSION 3.25)
function(pp_print path)
  get_filename_component(folder "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${path}" DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${ARGN} OUTPUT_FILE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${path}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(tool IN LISTS PP_TOOLS)
  pp_print(share/man/man1/${tool}.1 ${PP_BIN}/${tool} manual)
  pp_print(share/bash-completion/completions/${tool} ${PP_BIN}/${tool} completion bash)
  pp_print(share/zsh/site-functions/_${tool} ${PP_BIN}/${tool} completion zsh)
  pp_print(share/fish/vendor_completions.d/${tool}.fish ${PP_BIN}/${tool} completion fish)
endforeach()
if("pp-profile" IN_LIST PP_TOOLS)
  execute_process(COMMAND ${PP_BIN}/pp-profile schema --directory "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/pp/schemas"
    COMMAND_ERROR_IS_FATAL ANY)
endif()
