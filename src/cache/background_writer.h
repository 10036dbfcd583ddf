// What threads have in common that write cached files while replies run.
#pragma once

namespace invar {

// For the calling thread: the reply comes first, and a file beyond the limit of `ulimit -f` is an
// error of write(), not the end of the process.
void prepare_background_writer();

}  // namespace invar
