resource "ingot_image" "debian" {
  image_ref     = "debian-12"
  source        = "debian-12.qcow2"
  format        = "qcow2"
  sha256_source = filesha256("debian-12.qcow2")
}
