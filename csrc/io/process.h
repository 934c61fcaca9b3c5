// Forks and signals, which concern the whole process.
#pragma once

namespace gz {

// From now on every fork of this process calls `before`, and then one of the others on either side
// of it; null: nothing. Functions that were added last are called first before a fork, and last
// after it.
void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)());

// Leaves signals to the program's own threads: blocks all in this thread but its own faults.
void block_signals() noexcept;

}  // namespace gz
