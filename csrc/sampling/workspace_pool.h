// Scratch memory that outlives the batch it was made for.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gz {

// Workspaces, at most as many as there were ever batches at once. Thread safety: all of it.
template <class Workspace>
class WorkspacePool {
 public:
  // One that was given back, else a fresh one.
  std::unique_ptr<Workspace> borrow() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Workspace> workspace = std::move(idle_.back());
        idle_.pop_back();
        return workspace;
      }
    }
    return std::make_unique<Workspace>();
  }

  // A workspace that an error has interrupted is not given back but dropped.
  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace gz
