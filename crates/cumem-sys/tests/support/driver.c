/* A driver that does next to nothing, in many variants: what a test needs to be wrong, it switches
 * on when it compiles this. Its answers are those that a real driver gave. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION 13000
#endif
#ifndef INIT
#define INIT 0
#endif
#ifndef DEVICES
#define DEVICES 2
#endif

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    STUB_LIBRARY = 34,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201
};

/* What a test reads and sets. */
int fixture_inits;
int fixture_legacy_uses;
int fixture_live;
volatile int fixture_hold_init;
volatile int fixture_in_init;
int fixture_location[2];
int fixture_device;
int fixture_asked_version;

static int initialised_by;

static int gate(void) {
#ifdef STUB
    return STUB_LIBRARY;
#endif
    return initialised_by == getpid() ? SUCCESS : NOT_INITIALIZED;
}

#define CALL(name, ...)     \
    int name(__VA_ARGS__) { \
        int bad = gate();   \
        if (bad)            \
            return bad;
#define END         \
    return SUCCESS; \
    }

int cuInit(unsigned flags) {
#ifdef STUB
    return STUB_LIBRARY;
#endif
    if (flags)
        return INVALID_VALUE;
    if (initialised_by && initialised_by != getpid())
        return NOT_INITIALIZED;
    __atomic_add_fetch(&fixture_inits, 1, __ATOMIC_SEQ_CST);
    fixture_in_init = 1;
    while (fixture_hold_init)
        usleep(1000);
    if (INIT == SUCCESS)
        initialised_by = getpid();
    return INIT;
}

int cuDriverGetVersion(int *version) {
#ifdef STUB
    return STUB_LIBRARY;
#endif
    if (initialised_by && initialised_by != getpid())
        return NOT_INITIALIZED;
    *version = VERSION;
    return SUCCESS;
}

int cuGetErrorName(int code, const char **name) {
    if (code != 9999) {
        *name = 0;
        return INVALID_VALUE;
    }
    *name = "CUDA_ERROR_OF_TOMORROW";
    return SUCCESS;
}

int cuGetErrorString(int code, const char **text) {
    if (code != 9999) {
        *text = 0;
        return INVALID_VALUE;
    }
    *text = "an error of tomorrow";
    return SUCCESS;
}

CALL(cuDeviceGetCount, int *count) *count = DEVICES; END

CALL(cuDeviceGet, int *device, int ordinal)
    if (ordinal < 0 || ordinal >= DEVICES)
        return INVALID_DEVICE;
    *device = ordinal;
END

CALL(cuDeviceGetName, char *name, int length, int device)
    /* A name without an end, as long as there is room. */
    memset(name, 'n', (size_t)length);
END

CALL(cuDeviceGetAttribute, int *value, int attribute, int device) *value = attribute; END
CALL(cuDeviceTotalMem_v2, size_t *bytes, int device) *bytes = (size_t)1 << 36; END

static int the_context;
static __thread void *current;

CALL(cuDevicePrimaryCtxRetain, void **context, int device) *context = &the_context; END
CALL(cuDevicePrimaryCtxRelease_v2, int device) END
CALL(cuCtxPushCurrent_v2, void *context) current = context; END
CALL(cuCtxPopCurrent_v2, void **context) *context = current; current = 0; END
CALL(cuCtxGetCurrent, void **context) *context = current; END
CALL(cuCtxSetCurrent, void *context) current = context; END
CALL(cuCtxSynchronize, void) END

/* Sizes that a real driver could not have. */
#define ANSWERS_TOMORROW 9999

CALL(cuMemGetInfo_v2, size_t *free_bytes, size_t *total)
    *free_bytes = (size_t)1 << 35;
    *total = (size_t)1 << 36;
END

CALL(cuMemAlloc_v2, unsigned long long *pointer, size_t bytes)
    if (bytes == ANSWERS_TOMORROW)
        return 9999;
    *pointer = (unsigned long long)malloc(bytes);
    fixture_live++;
END

CALL(cuMemAllocManaged, unsigned long long *pointer, size_t bytes, unsigned flags)
    *pointer = (unsigned long long)malloc(bytes);
    fixture_live++;
END

#ifndef WITHOUT_FREE
CALL(cuMemFree_v2, unsigned long long pointer)
    free((void *)pointer);
    fixture_live--;
END
#endif

CALL(cuMemHostAlloc, void **pointer, size_t bytes, unsigned flags)
    *pointer = malloc(bytes);
    fixture_live++;
END

CALL(cuMemFreeHost, void *pointer)
    free(pointer);
    fixture_live--;
END

CALL(cuPointerGetAttribute, void *data, int attribute, unsigned long long pointer)
    return INVALID_VALUE;
END

CALL(cuMemcpyHtoD_v2, unsigned long long to, const void *from, size_t bytes)
    memcpy((void *)to, from, bytes);
END

CALL(cuMemcpyDtoH_v2, void *to, unsigned long long from, size_t bytes)
    memcpy(to, (void *)from, bytes);
END

CALL(cuMemcpyDtoD_v2, unsigned long long to, unsigned long long from, size_t bytes)
    memcpy((void *)to, (void *)from, bytes);
END

/* The two forms of advice. */
struct location {
    int type;
    int id;
};

CALL(cuMemAdvise, unsigned long long pointer, size_t bytes, int advice, int device)
    fixture_device = device;
END

CALL(advise_v2, unsigned long long pointer, size_t bytes, int advice, struct location location)
    fixture_location[0] = location.type;
    fixture_location[1] = location.id;
END

#ifdef EXPORTED_ADVISE
int cuMemAdvise_v2(unsigned long long pointer, size_t bytes, int advice, struct location location) {
    return advise_v2(pointer, bytes, advice, location);
}
#endif

/* The entry points of CUDA 3.1, with device pointers of 32 bits. */
#define LEGACY(name, ...)      \
    int name(__VA_ARGS__) {    \
        fixture_legacy_uses++; \
        return INVALID_CONTEXT; \
    }

LEGACY(cuMemAlloc, unsigned *pointer, unsigned bytes)
LEGACY(cuMemFree, unsigned pointer)
LEGACY(cuMemGetInfo, unsigned *free_bytes, unsigned *total)
LEGACY(cuMemcpyHtoD, unsigned to, const void *from, unsigned bytes)
LEGACY(cuMemcpyDtoH, void *to, unsigned from, unsigned bytes)
LEGACY(cuMemcpyDtoD, unsigned to, unsigned from, unsigned bytes)
LEGACY(cuMemcpyHtoDAsync, unsigned to, const void *from, unsigned bytes, void *stream)
LEGACY(cuMemcpyDtoHAsync, void *to, unsigned from, unsigned bytes, void *stream)
LEGACY(cuMemcpyDtoDAsync, unsigned to, unsigned from, unsigned bytes, void *stream)
LEGACY(cuMemsetD8, unsigned to, unsigned char value, unsigned count)
LEGACY(cuMemsetD16, unsigned to, unsigned short value, unsigned count)
LEGACY(cuMemsetD32, unsigned to, unsigned value, unsigned count)
LEGACY(cuMemGetAddressRange, unsigned *base, unsigned *bytes, unsigned pointer)
LEGACY(cuMemHostGetDevicePointer, unsigned *device_pointer, void *pointer, unsigned flags)
LEGACY(cuMemHostRegister, void *pointer, size_t bytes, unsigned flags)
LEGACY(cuDeviceTotalMem, unsigned *bytes, int device)
LEGACY(cuCtxCreate, void **context, unsigned flags, int device)
LEGACY(cuCtxDestroy, void *context)
LEGACY(cuCtxPushCurrent, void *context)
LEGACY(cuCtxPopCurrent, void **context)
LEGACY(cuDevicePrimaryCtxRelease, int device)
LEGACY(cuDevicePrimaryCtxReset, int device)
LEGACY(cuDevicePrimaryCtxSetFlags, int device, unsigned flags)
LEGACY(cuDeviceGetUuid, void *uuid, int device)
LEGACY(cuStreamDestroy, void *stream)
LEGACY(cuEventDestroy, void *event)
LEGACY(cuGetProcAddress, const char *name, void **found, int version, unsigned long long flags)

/* Hands out the location form only to who asks for an API that has it, and the oldest way to free to
 * everybody. Answers all else with success and a null pointer, but for a version above its own. */
#ifdef LOOK_UP
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags,
                        int *status) {
    int is_advise = strcmp(name, "cuMemAdvise") == 0;
    if (version > VERSION)
        return INVALID_VALUE;
    if (is_advise && version >= 12020) {
        fixture_asked_version = version;
        *found = (void *)advise_v2;
    } else if (strcmp(name, "cuMemFree") == 0) {
        *found = (void *)cuMemFree;
    } else {
        *found = 0;
    }
    *status = *found ? 0 : is_advise ? 2 : 1;
    return SUCCESS;
}
#endif
