/* SPDX-License-Identifier: Apache-2.0 */
/* Saves the memory of a running trainer, and reads checkpoints back into it: the C interface that other languages bind
 * to. A save:
 *
 *     ckpt_save_new      a save of one step
 *     ckpt_save_memory   which memory belongs to it, a range at a time
 *     ckpt_save_tensor   what is made of the ranges: one file of tensors; or files of another make: ckpt_save_archive,
 *                        ckpt_save_record, ckpt_save_file
 *     ckpt_save_start    hands it to the saver's thread; nothing can be added afterwards
 *     ckpt_save_freeze   THE MOMENT: what is stored is what the ranges hold now, whatever is written to them later
 *
 * What takes long to describe (a pickle) may be described, and started, after the moment or by another thread meanwhile.
 *
 * Freezing copies nothing where memory can be write-protected (userfaultfd): pages are copied aside only if they're
 * written to before the writer got there. Elsewhere it copies at once. A thread of the saver does the rest.
 *
 * Every function that can fail returns CKPT_OK or why not; ckpt_message() then says it in words. Sizes and offsets are
 * in bytes, shapes and strides in elements, times in seconds. Strings are UTF-8 or any bytes but NUL, copied at the
 * call. All functions may be called from any thread; on one save two threads at a time may only freeze and describe, and
 * ask for state, timings and waits. After fork() the child can use nothing that the parent made: every call answers
 * CKPT_INVALID. ckpt_save(3) has it all. */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_C_API __attribute__((visibility("default")))

/* Chosen by what the caller can do about it; the numbers never change. */
enum ckpt_status {
  CKPT_OK = 0,
  CKPT_INVALID = 1,     /* the call is wrong: mend the call */
  CKPT_NOT_FOUND = 2,   /* a file, store, checkpoint or tensor isn't there */
  CKPT_EXISTS = 3,      /* the step is taken by other content */
  CKPT_MALFORMED = 4,   /* an input isn't what it claims to be */
  CKPT_DAMAGED = 5,     /* stored bytes fail their check */
  CKPT_UNSUPPORTED = 6, /* written by a newer version, or not possible here */
  CKPT_NO_SPACE = 7,    /* disk or quota full */
  CKPT_BUSY = 8,        /* temporary: try again */
  CKPT_IO = 9,          /* the operating system refused */
  CKPT_INTERRUPTED = 10,
  CKPT_NO_MEMORY = 11,
  CKPT_TIMED_OUT = 12 /* not there yet; the work goes on */
};

/* The last failure of the calling thread; never NULL, valid until its next call. The hint may be empty. */
CKPT_C_API const char* ckpt_message(void);
CKPT_C_API const char* ckpt_hint(void);
CKPT_C_API const char* ckpt_version(void);

/* States of a save (ckpt(7)). */
enum ckpt_state {
  CKPT_STATE_NEW = 0,     /* not frozen yet */
  CKPT_STATE_STAGED = 1,  /* frozen: the memory may be overwritten */
  CKPT_STATE_WRITING = 2, /* on its way to the store */
  CKPT_STATE_WRITTEN = 3, /* this rank's shard is on stable storage; other ranks' are missing */
  CKPT_STATE_DURABLE = 4, /* the checkpoint is committed, on stable storage */
  CKPT_STATE_FAILED = 5,
  CKPT_STATE_SKIPPED = 6
};

/* How memory is kept as it was at the moment of a save. */
enum ckpt_capture {
  CKPT_CAPTURE_AUTO = 0,    /* protect what can be protected, copy the rest */
  CKPT_CAPTURE_COPY = 1,    /* for memory that devices write to (pinned, RDMA): no one sees that */
  CKPT_CAPTURE_PROTECT = 2, /* CKPT_UNSUPPORTED where userfaultfd isn't to be had */
};

typedef struct ckpt_saver ckpt_saver;
typedef struct ckpt_save ckpt_save;
typedef struct ckpt_load ckpt_load;
typedef struct ckpt_job ckpt_job;

#define CKPT_UNSET UINT64_MAX

/* Set by ckpt_saver_defaults(); then changed. Zeros in `reserved`. */
typedef struct ckpt_saver_options {
  size_t struct_size;        /* of this struct, as the caller knows it */
  const char* store;         /* made if it isn't there */
  uint32_t rank;             /* below world_size */
  uint32_t world_size;       /* 1 */
  uint64_t attempt;          /* CKPT_UNSET: the highest that the store records */
  uint64_t resumed_from;     /* CKPT_UNSET; else newer steps of lower attempts are retired with the first save */
  const char* encode;        /* "raw", "fast" (default) or "best" */
  uint64_t base_step;        /* CKPT_UNSET: the newest good one */
  int use_base;              /* 1; 0: nothing is kept as a difference */
  int check;                 /* 1: what was encoded is decoded and compared */
  enum ckpt_capture capture; /* CKPT_CAPTURE_AUTO */
  uint64_t memory;           /* bytes that may be set aside; 0: a quarter of what this process may still take. If it's
                              * given, and everything will be copied, ckpt_saver_open() makes its pages */
  uint32_t local_world_size; /* 1: processes on this node, which share that quarter */
  uint32_t jobs;             /* threads that read, hash and encode; 0: all cores but one */
  int64_t fixed_time;        /* INT64_MIN; else recorded for the clock: reproducible stores */
  const ckpt_job* job;       /* NULL; else it's told that this process is alive while the bytes of a save move, and not
                              * when they don't. It may be freed before the saver is closed */
  double alive_seconds;      /* 1: no more often than this */
  void* reserved[6];
} ckpt_saver_options;
CKPT_C_API void ckpt_saver_defaults(ckpt_saver_options* options);

/* Opens the store and starts the threads: what is slow happens here, not in the first save. */
CKPT_C_API int ckpt_saver_open(const ckpt_saver_options* options, ckpt_saver** saver);
/* Waits for all saves, up to `timeout` seconds (negative: for ever), then ends the threads and frees the saver. The
 * first failure that no one has been told of is returned. On CKPT_TIMED_OUT the saver stays open. Saves stay valid,
 * and are freed by ckpt_save_free(). */
CKPT_C_API int ckpt_saver_close(ckpt_saver* saver, double timeout);
/* Saves that are neither durable nor written, nor failed. */
CKPT_C_API size_t ckpt_saver_pending(const ckpt_saver* saver);
/* 1 if memory can be write-protected here; 0: ckpt_message() says why it can't. */
CKPT_C_API int ckpt_can_protect(void);

/* Saves of one saver are written in the order in which they were started. */
CKPT_C_API int ckpt_save_new(ckpt_saver* saver, uint64_t step, ckpt_save** save);
/* Kept in the manifest under the user's own keys. Before ckpt_save_start(). */
CKPT_C_API int ckpt_save_meta(ckpt_save* save, const char* key, const char* value);

/* How one range is kept as it is. */
enum ckpt_keep {
  CKPT_KEEP_BEST = 0,  /* as the saver's options say */
  CKPT_KEEP_COPY = 1,  /* copied at the moment, never protected */
  CKPT_KEEP_STEADY = 2 /* the caller's promise: nobody writes to it from ckpt_save_start() until it's released. What is
                          stored is what it holds then, not at the moment: for copies that a device still makes */
};
/* Adds a range to what is frozen, and gives its number. `keep` is one of enum ckpt_keep. The memory must stay mapped
 * until ckpt_save_released() says so: a range that is unmapped before fails the save, and only that. */
CKPT_C_API int ckpt_save_memory(ckpt_save* save, const void* data, uint64_t size, int keep, uint64_t* range);
/* The same of many at once: `ranges` gets consecutive numbers from *first. */
CKPT_C_API int ckpt_save_memories(ckpt_save* save, const void* const* data, const uint64_t* sizes, size_t count,
                                  int keep, uint64_t* first);
/* The moment; once. Returns when the memory may be overwritten (staged). What has to be copied and is larger than the
 * memory that may be set aside is copied in waves, as the writer makes room: it must be started by then, or within a
 * minute by another thread, else CKPT_NO_MEMORY. */
CKPT_C_API int ckpt_save_freeze(ckpt_save* save);

/* What is made of the ranges, each of which is used once at most, except by tensors. Before ckpt_save_start(). */

/* A file of these bytes. */
CKPT_C_API int ckpt_save_file(ckpt_save* save, const char* path, const void* bytes, uint64_t size);
/* Begins a file as torch.save writes it, a zip archive; the records that follow go into it, as PREFIX/NAME. */
CKPT_C_API int ckpt_save_archive(ckpt_save* save, const char* path, const char* prefix);
CKPT_C_API int ckpt_save_record(ckpt_save* save, const char* name, const void* bytes, uint64_t size);
/* A record that is a frozen range, or the front of one. */
CKPT_C_API int ckpt_save_record_of(ckpt_save* save, const char* name, uint64_t range, uint64_t size);

/* A named, typed, strided view on a range. All tensors of a save go into one file, "state.pt", which torch.load reads as
 * a dict of them; views on the same range stay views on the same storage. */
typedef struct ckpt_tensor {
  size_t struct_size;
  const char* name;
  const char* dtype; /* PyTorch's name: "float32", "bfloat16", "bool" */
  uint64_t range;
  uint64_t offset; /* in the range, in bytes: of the first element */
  uint32_t dims;
  const int64_t* shape;          /* `dims` of them, as of all that follow */
  const int64_t* strides;        /* NULL: contiguous */
  const int64_t* global_shape;   /* NULL: not sharded */
  const int64_t* global_offsets; /* where in the whole this part begins */
} ckpt_tensor;
CKPT_C_API int ckpt_save_tensor(ckpt_save* save, const ckpt_tensor* tensor);

/* Hands it to the saver's thread, which begins at the moment; nothing can be added afterwards. */
CKPT_C_API int ckpt_save_start(ckpt_save* save);

CKPT_C_API enum ckpt_state ckpt_save_state(const ckpt_save* save);
/* 1 if none of the ranges will be looked at again: the memory may be unmapped. */
CKPT_C_API int ckpt_save_released(const ckpt_save* save);
/* Waits until it's durable, written, skipped or failed, up to `timeout` seconds (negative: for ever). CKPT_TIMED_OUT,
 * or the save's failure, which counts as told. With until_durable also for the other ranks' shards. */
CKPT_C_API int ckpt_save_wait(ckpt_save* save, double timeout, int until_durable);
/* Ends it: one that hasn't been started is dropped, one that runs goes on. NULL is fine. */
CKPT_C_API void ckpt_save_free(ckpt_save* save);

typedef struct ckpt_timings {
  size_t struct_size;
  double freeze_seconds;     /* the stall: in ckpt_save_freeze() */
  double fault_seconds;      /* the stall afterwards: writers that waited, added up over threads */
  double wait_seconds;       /* of that and of freezing: for room in the memory that may be set aside */
  double write_seconds;      /* from the start of writing to the shard's fsync */
  double durable_seconds;    /* from the moment to the commit; 0 until then */
  uint64_t protected_bytes;  /* of the ranges: without a copy */
  uint64_t copied_bytes;     /* of the ranges: copied at the moment */
  uint64_t aside_bytes;      /* of the protected: copied aside since, as they were about to be written to */
  uint64_t peak_aside_bytes; /* the most memory that was set aside at a time */
  uint64_t waves;            /* 1; more: the state was larger than the memory that may be set aside */
  uint64_t raw_bytes;
  uint64_t stored_bytes;
  char why_copied[128]; /* why what was copied couldn't be protected; empty: nothing was */
  char warning[256];    /* the last thing that one should know although it went well; empty: nothing */
  char id[33];          /* the checkpoint's, once it's durable */
} ckpt_timings;
CKPT_C_API int ckpt_save_timings(const ckpt_save* save, ckpt_timings* timings);

/* A rank's line to the supervisor that started it, ckpt-run: how far it is, that it's alive, and whether to save. Nothing
 * that the supervisor does or fails to do with what it's told makes these calls fail, or wait for long. The library
 * reads no environment: the members are what these variables hold. NULL or empty, both: nobody supervises, and the
 * calls do nothing. */
typedef struct ckpt_job_options {
  size_t struct_size;
  const char* notify_socket; /* NOTIFY_SOCKET: a path, or @NAME in Linux' abstract space; sd_notify(3)'s datagrams */
  const char* control;       /* CKPT_CONTROL: shared memory through which all ranks are asked at the same step */
  uint32_t local_rank;       /* LOCAL_RANK: which of this node's ranks this is */
  void* reserved[8];
} ckpt_job_options;
CKPT_C_API void ckpt_job_defaults(ckpt_job_options* options);
/* CKPT_INVALID where a name can't be one, or there's no such rank; CKPT_NOT_FOUND or CKPT_MALFORMED for `control`. */
CKPT_C_API int ckpt_job_open(const ckpt_job_options* options, ckpt_job** job);

/* What is asked of a rank at the end of a step: of all ranks of a node at the same step, and of each once. */
enum ckpt_request {
  CKPT_REQUEST_NONE = 0,
  CKPT_REQUEST_SAVE = 1, /* save this step */
  CKPT_REQUEST_STOP = 2  /* save this step, wait for it, and end the process with 0 */
};
/* The step is finished; steps only grow. `status` is NULL or a line on how it goes ("loss 1.93"), of which 200 bytes
 * are passed on, control characters as spaces. By one thread at a time: another's call waits. */
CKPT_C_API int ckpt_job_step(ckpt_job* job, uint64_t step, const char* status, enum ckpt_request* request);
/* This process is alive, though a step takes long. */
CKPT_C_API int ckpt_job_alive(ckpt_job* job);
/* What follows takes so long: it isn't taken for dead before. */
CKPT_C_API int ckpt_job_extend(ckpt_job* job, double seconds);
/* NULL is fine. */
CKPT_C_API void ckpt_job_free(ckpt_job* job);

/* Reading. `selector` is what follows the @ of an address: a step, "latest", "latest~1", "id:PREFIX"; NULL: the newest
 * that is neither lossy nor suspect. Several calls on one load at a time are fine. */
CKPT_C_API int ckpt_load_open(const char* store, const char* selector, ckpt_load** load);
CKPT_C_API void ckpt_load_free(ckpt_load* load);
CKPT_C_API uint64_t ckpt_load_step(const ckpt_load* load);
CKPT_C_API uint32_t ckpt_load_world_size(const ckpt_load* load);
CKPT_C_API const char* ckpt_load_id(const ckpt_load* load);

/* The size of a rank's file. CKPT_NOT_FOUND if it has none of that name. */
CKPT_C_API int ckpt_load_file_size(const ckpt_load* load, uint32_t rank, const char* path, uint64_t* size);
/* The whole file, decoded in parallel and checked. `size` is that of `into`, and must be the file's. */
CKPT_C_API int ckpt_load_file(ckpt_load* load, uint32_t rank, const char* path, void* into, uint64_t size);

/* A tensor of the whole checkpoint, joined over the shards that hold it. */
typedef struct ckpt_tensor_info {
  size_t struct_size;
  const char* name; /* valid as long as the load */
  const char* dtype;
  uint32_t dims;
  const int64_t* shape; /* the whole's; valid as long as the load */
} ckpt_tensor_info;
CKPT_C_API size_t ckpt_load_tensor_count(const ckpt_load* load);
CKPT_C_API int ckpt_load_tensor_at(const ckpt_load* load, size_t index, ckpt_tensor_info* info);
CKPT_C_API int ckpt_load_find(const ckpt_load* load, const char* name, ckpt_tensor_info* info);
/* The box [offsets, offsets + shape) of the tensor into `into`, whose strides (NULL: contiguous) are in elements and
 * not negative. Gaps between shards, or shards that overlap and differ in it, are CKPT_DAMAGED. */
CKPT_C_API int ckpt_load_slice(ckpt_load* load, const char* name, const int64_t* offsets, const int64_t* shape,
                               const int64_t* strides, void* into);

/* A tensor that is stored raw, whole and in one shard, as a private mapping of its file: contiguous, checked, and
 * writable without the file being changed. Nothing is copied, and pages that nobody looks at take no memory. It may
 * outlive the load. */
typedef struct ckpt_mapping {
  size_t struct_size;
  void* data;
  uint64_t size; /* of the tensor */
  void* pages;   /* for ckpt_unmap() */
  uint64_t pages_size;
} ckpt_mapping;
/* CKPT_UNSUPPORTED where it isn't stored so: ckpt_load_slice() reads it then. */
CKPT_C_API int ckpt_load_map(ckpt_load* load, const char* name, ckpt_mapping* mapping);
CKPT_C_API void ckpt_unmap(ckpt_mapping* mapping);

#ifdef __cplusplus
}
#endif

#endif
