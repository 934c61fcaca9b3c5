// What concerns the whole process: forks and signals.
#pragma once

namespace gz {

// From now on every fork of this process calls `before`, and then one of the others on either side
// of it; null: nothing. Of several, what was added last is called first before a fork, and last
// after it.
void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)());

// Leaves signals to the threads that know what to do about them. Faults are a thread's own.
void block_signals() noexcept;

}  // namespace gz
