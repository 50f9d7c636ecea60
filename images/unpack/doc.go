// Package unpack writes the tar layers of an image as a file tree, and gives a
// tree its digest.
//
// Layers are hostile. The package keeps its own account of what it has written
// ([Tree]); every member is judged by that account before the disk is touched,
// so no link is ever followed, and what it refuses it names. Owners, set-id
// bits, file capabilities and other extended attributes are not kept: a tree
// belongs to whoever unpacks it, nobody else may write to it, and everybody may
// read what others could read in the archive.
//
// It must never write outside the directory that it is given, nor write without
// a bound.
//
// Proven by TestTree_RefusesHostileMembers and FuzzTree.
package unpack
