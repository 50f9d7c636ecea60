// Package source finds the layers of an image: in an OCI layout (a directory or
// a tar), in what `docker save` writes, in a plain tar of a root file system, or
// in a registry.
//
// What it reads is hostile: whatever is held in memory is bounded first, a layer
// is compared with the digest that its image names, and no link leads out of a
// directory. It hands out streams and must never write, but for a scratch file
// where it is told to.
//
// Proven by TestOpen_ReadsEverySource and TestOpen_RefusesHostileArchives.
package source
