# What `make install` installs.
install(TARGETS tfmc RUNTIME)
install(TARGETS tfm_shared LIBRARY)
