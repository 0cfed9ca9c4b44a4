#include "hook.h"
void falcon_profile_begin(falcon_tls *t, falcon_span *s, void *stream) { (void)t; (void)s; (void)stream; }
void falcon_profile_end(falcon_tls *t, falcon_span *s, const falcon_record *r, bool ok) { (void)t; (void)s; (void)r; (void)ok; }
void falcon_profile_group_end(falcon_tls *t, bool launched) { (void)t; (void)launched; }
bool falcon_profile_tick(uint64_t now_ns) { (void)now_ns; return false; }
