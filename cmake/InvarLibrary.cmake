# libinvar: the engine and all layers below it behind include/invar/invar.h.
add_library(invar INTERFACE)
target_link_libraries(invar INTERFACE invar_engine)
