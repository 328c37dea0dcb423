/* Whether this process has memory of others. What a dead process exported stays charged for as long
 * as some living one says so in its slot, whether or not it is that memory: so it must be taken
 * back when the last import ends, or all who die beside a process that once imported leave what
 * they had behind. Ends that are not seen (a context's, a pool's) leave it said. */
#ifndef HAMI_IMPORTS_H
#define HAMI_IMPORTS_H

void hami_import_begins(void); /* before the driver is asked: the exporter may die meanwhile */
void hami_import_ends(void);   /* or did not come about */

#endif
