#include "slice/process.h"

struct hami_process hami_process[1];
