// Work on the engine's own threads, against fork(). A child gets copies of all locks as they stand,
// and none of the threads that would open them: so fork() waits while a job runs.
#pragma once

namespace gz {

// Held by a thread of the engine while it runs a job; waits while another thread forks, which in
// turn waits for the jobs under way.
class Job {
 public:
  Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();
};

}  // namespace gz
