// What a server says when it is ready: the model, where it runs and why, memory and address.
#pragma once

#include <chrono>

#include "invar/invar.h"

namespace invar::cli {

void report_start(const ModelDescription& model, std::chrono::duration<double> took);

}  // namespace invar::cli
