// Settings of LibTorch that hold per thread.
#pragma once

namespace pp::profile {

/// From now on what LibTorch warns of on this thread is said once in the life of the process, on stderr:
/// some of its operations repeat it at each call.
void warn_once();

/// First line of every thread that runs segments: warn_once(), at most `threads` threads inside one operation,
/// gradients recorded, and backward in this thread. (LibTorch would run backward on a CUDA device in one thread
/// that all workers share.) `threads` also holds for threads started later from this one. The first call of a
/// process also calls oneMKL's vector functions, whose first calls must not run together (threads.cpp).
void enter_worker_thread(int threads);

}  // namespace pp::profile
